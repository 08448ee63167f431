"""The words by which the sections of a job posting are told, in the languages most are written in.

English, German, French, Spanish, with the commonest headings in Italian, Portuguese and Dutch.
"""

import re


def _words(*patterns: str) -> re.Pattern[str]:
    # Typographic apostrophes are as common as straight ones: a dot stands for both.
    return re.compile("|".join(patterns), re.IGNORECASE)


# Headings that name requirements.
NAMED = _words(
    r"requirement|qualification|\bmust.haves?\b|^required\b|prerequisite",
    r"anforderung|voraussetzung|qualifikation|(ihr|dein|das|unser) .{0,20}profil|^profil\b",
    r"profil (re(cherch|quis)|souhait|attendu|id[ée]al)|(votre|ton|le) profil|compétences",
    r"pr[ée].?requis|exigences|requisit|(tu|su|el) perfil|perfil (buscado|requerido|deseado)",
    r"qualificaç|^(il tuo|o seu|seu) (profilo|perfil)|functie.?eisen|(jouw|je|het) profiel",
)
# What would be welcome besides.
BONUS = _words(
    r"nice.to.haves?|\bpreferr?ed\b|bonus (points?|if|skills|qualif|exper)|^(a )?bonus\W*$",
    r"\bplus(es)?\b(?! ?\d)|\bdesir(ed|able)|(good|great) to have|extra credit|stand out",
    r"sets? you apart|even better|advantageous|strong candidates (may|might|will|often)",
    r"von vorteil|wünschenswert|idealerweise|\batouts?\b|serait un|deseable|se valora|valorable",
)
# Headings that speak to the applicant.
ASKING = _words(
    r"who you are|about you\b|what (it takes|makes (you|a) )",
    r"\b(good|great|right|perfect) (fit|match)",
    r"what (you|we)\b.{0,12} (bring|needs?|haves?|expect|seek|require)\b",
    r"what (we|we.re|we are) .{0,8}look(ing)? (for|at)|what we look for",
    r"who we.{0,9} look(ing)? for",
    r"^you.{0,4}( will| should| must| may| might|.ll|.ve)? (have|bring|need|possess|are|got)\b",
    r"you (may|might|could|will|would|.ll) (be .{0,20}(fit|match|success)|thrive|excel|succeed)",
    r"\bif( you)?( have| are| also)?\W*$",
    r"^(skills|experience|education|knowledge|competenc\w+|background)\W*$",
    r"\b(your|key|core|required|technical|essential|the) (profile|skills|experience|background)",
    r"your (expertise|qualities|strengths|toolkit)|(ideal|successful) candidate",
    r"(skills|education|experience|knowledge)( and|,| &| ?/) ?(skills|exper|educat|knowl|abil)",
    r"(das|was) (bringst|bringen) |was (du|sie) mitbring|mitbring(st|en)|wen wir suchen",
    r"wir erwarten",
    r"das (bist|zeichnet)|(du|sie) (hast|bist|haben|verfüg)|wir suchen|erfahrung und kenntnisse",
    r"(vous|tu) (êtes|avez|es|as|possédez)\b|(que|qui) nous (re)?cherchons|vos (atouts|compét)",
    r"(lo )?que (buscamos|necesit|esperamos|pedimos)|(sobre|acerca de) (ti|usted)\b|qué buscamos",
    r"(cosa|chi) cerchiamo|o que (buscamos|procuramos|esperamos)",
    r"wat (je|jij|wij) (mee|zoeken|vragen)",
)
# Sentences and catch-alls, which only count where nothing is named more clearly.
BROAD_ASKING = _words(r"look(ing)? for\b|\b(skills?|experience)\W*$|^experience\b")
# What there is to do.
TASKS = _words(
    r"responsibilit|\bduties\b|what you.{0,8} (do|be doing|work|own|build)\b",
    r"^you.{0,5}(will|.ll)\W*$",
    r"^(in|about) th(is|e) (role|job|position|opportunity)|^the (role|job)\b",
    r"your (role|mission|impact)",
    r"the role involves|day.(to|by).day|job (description|summary)|a (typical )?day in",
    r"key accountab",
    r"aufgaben|(dich|sie|dir) erwarte|tätigkeit|missions?\b|vos responsab|le poste",
    r"(tus )?funciones",
    r"responsabil|tareas|(tu|el) (rol|puesto)|mansioni|atividades|taken\b|werkzaamheden",
)
# Headings after which nothing is asked any more.
OTHER = _words(
    TASKS.pattern,
    r"benefit|\bperks|we offer|what.s in it|what you.{0,6} get|compensation|\bsalary|\bpay\b",
    r"rewards",
    r"about (us|the|our)\b|^about (?!you\b)|who we are|equal.{0,12}opportunit|how to apply|apply",
    r"\bour (culture|values|team|mission|process|company|stack|tech)|why (join|work|you|us|we)\b",
    r"interview|hiring process|life at|additional information|logistics|work(ing)? environment",
    r"diversity|inclusi|accommodation|privacy|disclaimer|\blocation\b|the team|join us|notice",
    r"\bprojects?\b",
    r"wir bieten|bieten wir|über uns|wer wir sind|kontakt|bewerb|warum|dafür stehen|freuen",
    r"nous (offrons|proposons)|avantages|à propos|qui sommes|rejoi|pourquoi|processus|postuler",
    r"ofrecemos|beneficios|sobre (nosotros|la empresa|el)|quiénes somos|por qué|cómo aplicar",
    r"offriamo|chi siamo|oferecemos|sobre nós|wij bieden|over ons|wat wij bieden",
)
# A line that asks for something.
DEMAND = _words(
    r"experience|\byears?\b|degree|bachelor|master.s|ph\.?d|proficien|knowledge|familiar",
    r"ability to",
    r"understanding|fluen|expertise|background|track record|\bskills?\b|certif|passion|comfortable",
    r"^(you|strong|excellent|proven|solid|demonstrated|able|willing|capable|must)\b|\beligib",
    r"licen[sc]e",
    r"erfahr|kenntniss|abschluss|studium|ausbildung|fähigkeit|sicher im|bereitschaft|verhandlung",
    r"expérience|maîtris|diplôme|connaissance|capacité|formation|bac ?\+|aisance",
    r"experiencia|conocimiento|titulación|dominio|capacidad|licenciatura|grado en|nivel de",
    r"formación",
)
YOU = _words(r"\byou(r|.re|.ve|.ll)?\b|\b(du|dein\w*|sie|ihre?\w*|vous|votre|vos|tu|tus|usted)\b")
# Sums of money as they stand in a pay range.
MONEY_RANGE = re.compile(
    r"(?:USD|EUR|GBP|CAD|AUD|[$€£])\s?\d(?:[\d,.']*\d)?\s?[kK]?\s*(?:/\w+\s*)?"
    r"(?:[-–—]|to|and|bis|à|a)+\s*(?:USD|EUR|GBP|CAD|AUD|[$€£])?\s?\d(?:[\d,.']*\d)?\s?[kK]?"
    r"(?:\s*(?:USD|EUR|GBP|CAD|AUD|€|£))?"
)
# Paragraphs that close a posting, whatever they stand below.
CLOSING = _words(
    r"equal.{0,12}opportunit|discriminat|regardless of|without regard to|protected veteran",
    r"accommodation|fair chance|criminal histor|e-verify|background check|privacy (policy|notice)",
    r"(salary|pay|compensation|hiring) range|base (pay|salary|compensation)|401\(?k",
    r"health insurance",
    r"our benefits",
    r"chancengleichheit|schwerbehind|unabhängig von|égalité des chances|igualdad de oportunidades",
    MONEY_RANGE.pattern,
)
