"""What a posting's headings announce, in the words of many languages."""

import re
from enum import Enum
from functools import lru_cache


class Kind(Enum):
    """What a part of a posting is about."""

    UNKNOWN = "unknown"
    ROLE = "role"
    REQUIRED = "required"
    OFFER = "offer"
    COMPANY = "company"
    LEGAL = "legal"
    APPLY = "apply"
    JOBS = "jobs"


_HEADING_CHARS = 90

# In the order in which they are tried; each line is a language, or a family of them. A word is
# looked for where words begin, in Chinese, Japanese and Korean anywhere.
_JOBS = (
    r"(related|similar|recommended|other|more|recent(ly)?|latest) (?!about).{0,20}"
    r"(jobs?|roles?|positions?|openings|opportunities|vacancies|viewed)\b|jobs? (like|for) (this|you)",
    r"(ähnliche|weitere) (stellen|jobs)|(vergelijkbare|andere) vacatures|(lignende|liknande|ledige) ",
    r"(offres|postes) similaires|autres offres|(ofertas|empleos|vagas) (similares|relacionad)",
    r"(altre )?offerte simili|podobne oferty|you (might|may) also",
    r"^(explore|see|view|search|browse) .{0,14}(jobs|openings|roles)",
)
_APPLY = (
    r"how to apply|to apply\b|apply (now|for|to|here|online|today|with)|^appl(y|ication)\W*$|interview",
    r"how (we|to) (hire|recruit|interview)|(hiring|application|recruit\w*|selection) (process|procedure)|next steps|submit your",
    r"contact( (us|person|information|details))?\W*$",
    r"create a job alert|get (notified|job alerts)|^(share|save|print) this|voluntary self",
    r"\w*bewerb|\w*ansprechpartner|\w*kontakt|solliciteer|sollicit|contactpersoon|så (söker|ansöker)",
    r"ansök|søknad|ansøg|comment postuler|postuler|candidat(ure|er|ar|ura|i\b)|processus|pour postuler",
    r"cómo (aplicar|postular|inscrib)|inscrí?b|solicitud|como (se )?candidat|invia|jak aplikować",
    r"aplikuj|rekrutac|応募|選考|연락|지원 ?방법|应聘|联系",
)
_LEGAL = (
    r"equal.{0,12}opportunit|eeo\b|diversity|inclusi|accommodation|privacy|disclaimer|notice to",
    r"fraud|background check|legal|chancengleichheit|vielfalt|datenschutz|schwerbehind|égalité des",
    r"diversité|igualdad|diversidad|diversità|privacidad|różnorodn|gelijke kansen|mångfald|個人情報",
)
_ROLE = (
    r"responsibilit|\bduties\b|what you.{0,8}(do\b|be doing|work|own|build)|accountabilit|\btasks\b",
    r"(^in|about) th(is|e) (role|job|position|opportunity|work)|^the (role|job|position|opportunity)",
    r"(the|your) team\b|das team|dein team|l'équipe|el equipo|^(your|main|key) (role|mission|impact|tasks|day)|day.(to|by).day|^(job|role|position)\b.{0,3}"
    r"(description|summary|overview|purpose)|day in the life|you.{0,5}(will|.ll)\W*$|the role involves",
    r"\w*aufgaben|(dich|sie|dir) erwarte|erwartet (dich|sie)|tätigkeit|\w*stellenbeschreibung|ihre rolle|deine rolle",
    r"(vos |tes |les )?missions?\b|responsab|(le|du|votre) (poste|rôle|quotidien)|description du poste",
    r"(tus )?funciones|tareas|(tu|el) (rol|puesto|trabajo)|descripción del|o que (vais|vai|você) fa",
    r"as tuas|atividades|função|mansioni|attività|(di )?cosa (ti )?(occuper|farai)|il ruolo|compiti",
    r"\w*taken\b|werkzaamheden|wat (ga je|je gaat|ga jij) doen|(de )?functie(omschrijving)?\b|jouw rol",
    r"arbetsuppgifter|om (rollen|tjänsten|jobbet)|(dina )?uppgifter|arbe(id|jd)soppgaver|opgaver|om jobb",
    r"(zakres )?obowiąz|twoje zadania|zadania|opis stanowiska|tehtävä|úkoly|náplň|görev|feladat|sarcini",
    r"обязанност|задачи|仕事内容|業務内容|職務内容|主な業務|担当業務|岗位职责|工作内容|职位描述|담당 ?업무|주요 ?업무",
)
_REQUIRED = (
    r"requirement|(?<!self-)qualification|must.haves?\b|required\b|prerequisite|^essential|eligibility",
    r"nice.to.haves?|preferr?ed\b|bonus (points?|if|skills|qualif|exper)|(a )?bonus\W*$|desir(ed|able)",
    r"pluses\b|extra credit|stand out|sets? you apart|even better|(good|great) to have|a plus\W*$",
    r"\w*anforderung|\w*voraussetzung|\w*qualifikation|.{0,30}\bprofil\b|von vorteil|wünschenswert",
    r"(votre|ton|le) profil|compétences|pr[ée].?requis|exigences|atouts?\b|serait un|diplôme",
    r"requisit|(tu|su|el|o teu|o seu|il tuo) (perfil|profilo)|perfil|deseable|se valora|valorable",
    r"qualificaç|profilo|competenz|\w*eisen\b|(jouw|je|het) (profiel|achtergrond)|profiel",
    r"kvalifika|krav\b|kompetens|din (bakgrund|profil|kompetanse)|meriterande|ønsket|wymaga|mile widziane",
    r"kwalifikacje|oczekiwania|vaatimu|požad|aranan|elvár|cerințe|требован|квалификац|必須|応募資格|応募条件",
    r"歓迎|求める|资格|任职要求|岗位要求|職位要求|자격 ?요건|우대",
)
_OFFER = (
    r"\w*benefit|perks|(what )?we.{0,3} (can )?offer|what.s in it|what (you|we).{0,8} (get|receive|give)|rewards",
    r"(total )?compensation|salary|pay\b|remuneration|why you.ll love|additional information|our offer",
    r"(was )?wir bieten|bieten wir|das bieten|(deine|ihre) vorteile|unser angebot|\w*gehalt|vergütung",
    r"(ce que )?nous (t'|te |vous )?(offrons|proposons)|avantages|on (t'|vous )?offre|rémunération",
    r"(qué |lo que |o que |te )?(ofrecemos|oferecemos|offriamo)|beneficios|benefícios|salario|cosa offr",
    r"vantaggi|(wat )?(wij |we )?bieden|wat (krijg|bied)|arbeidsvoorwaarden|vi (er)?(bjuder|tilbyr)",
    r"vi tilbyder|förmåner|(co )?oferujemy|to oferujemy|benefity|wynagrodzenie|tarjoamme|nabízíme",
    r"sunuyoruz|kínálunk|oferim|мы предлагаем|условия|福利|待遇|給与|薪资|薪酬|복리 ?후생|혜택",
)
_EXPECTED = (
    r"who you are|about you\b|what (it takes|makes (you|a) )|(good|great|right|perfect) (fit|match)",
    r"what (you|we)\b.{0,12} (bring|needs?|haves?|expect|seek|require)\b|you.{0,4}(ll|will) need",
    r"(what|who) (we|we.re|we are)\b.{0,9} ?look(ing)? (for|at)|^(look|hop)ing for|who we (would|want|hope|need)|^you (bring|are|have)\b|^(ideal|success)",
    r"^you.{0,4}( will| should| must| may| might|.ll|.ve)? (have|bring|need|possess|are|got)\b",
    r"you (may|might|could|will|would|.ll) (be .{0,20}(fit|match|success)|thrive|excel|succeed)",
    r".*\bif( you)?( had| have| are| also)?\W*$|(your|key|core|technical|the|our) (profile|skills|experience"
    r"|background|expertise|qualities|strengths|toolkit)|(ideal|successful|right) candidate",
    r"(skills|experience|education|knowledge|competenc\w+|background|person specification)\W*$",
    r"(skills|education|experience|knowledge)( and|,| &| ?/) ?(skills|exper|educat|knowl|abil)",
    r"(das|was) .{0,20}(bringst|bringen)|was (du|sie) mitbring|mitbring(st|en)|wen wir suchen|wir erwarten",
    r"das (bist|zeichnet)|(du|sie) (hast|bist|haben|verfüg)|wir suchen|(deine|ihre) (kenntnisse|skills)",
    r"erfahrung und kenntnisse|(vous|tu) (êtes|avez|es|as|possédez)\b|(ce )?(que|qui) nous (re)?cherchons",
    r"vos (atouts|compét)|formation|(lo )?que (buscamos|necesit|esperamos|pedimos)|qué buscamos",
    r"(sobre|acerca de) (ti|usted)\b|(cosa|chi) cerchiamo|o que (buscamos|procuramos|esperamos|precisas)",
    r"sobre (ti|você)|wat (je|jij|wij) (mee|zoeken|vragen)|\w*breng(t|en)? (je|jij) mee|wie (zoeken wij|ben jij|jij bent)|wat vragen",
    r"vem (är du|söker vi|vi söker)|vi (söker|ser etter)|du (har|er|bør)\b|(om|hvem er) (dig|deg|du)\b",
    r"czego oczekujemy|kogo szukamy|co powin|nasze oczekiwania|mitä (odotamme|toivomme)|koho hledáme",
    r"(наши )?ожидания|мы ждем|こんな方|這樣的你|이런 ?분",
)
_COMPANY = (
    r"about (us|our company|the (company|organi[sz]ation|firm|employer|business))\b|who we are|company",
    r"about (?!(you|the|this|your|a) ?)|our (culture|values|mission|story|company)|life at",
    r"our promise|why (join|work (at|for|with|here)|us\b|choose)|join us|employer|boilerplate",
    r"(über|ueber) |wer wir sind|(das|dein|ihr) unternehmen|unternehmensbeschreibung|warum (wir|zu)",
    r"à propos|qui sommes|(l')?entreprise|pourquoi (nous|rejoindre)|rejoi|notre (société|histoire)",
    r"sobre (nosotros|la empresa|nós|a empresa|el)|quiénes somos|quem somos|la empresa|por qué",
    r"chi siamo|l'azienda|over (ons|het bedrijf)|wie (zijn wij|wij zijn)|om (oss|os|företaget|bedrift)",
    r"o (nas|firmie)|kim jesteśmy|tietoa meistä|kdo jsme|hakkımızda|rólunk|despre noi|о (нас|компании)",
    r"会社概要|会社紹介|公司介绍|关于我们|회사 ?소개",
)
# Sentences that lead up to a list; they announce what is asked only when the list does ask.
BROAD = re.compile(
    r"(?:look(?:ing)?|hoping) for\b|\b(?:skills?|experience)\W*$|^experience\b|\bsuchen\b|recherchons|buscamos",
    re.IGNORECASE,
)
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def _any_of(lines: tuple[str, ...]) -> re.Pattern[str]:
    words = "|".join(lines)
    anywhere = "|".join(word for word in words.split("|") if _CJK.search(word))
    return re.compile(rf"(?<!\w)(?:{words})" + (f"|{anywhere}" if anywhere else ""))


_KINDS = (
    (Kind.JOBS, _any_of(_JOBS)),
    (Kind.LEGAL, _any_of(_LEGAL)),
    (Kind.APPLY, _any_of(_APPLY)),
    (Kind.ROLE, _any_of(_ROLE)),
    (Kind.REQUIRED, _any_of(_REQUIRED)),
    (Kind.OFFER, _any_of(_OFFER)),
    (Kind.REQUIRED, _any_of(_EXPECTED)),
    (Kind.COMPANY, _any_of(_COMPANY)),
)


@lru_cache(maxsize=4096)
def heading_kind(text: str) -> Kind:
    """What the line announces, if it is a heading."""
    if len(text) > _HEADING_CHARS:
        return Kind.UNKNOWN
    plain = text.replace("’", "'").casefold().strip(" \t*#_:：-–—.•【】■◆")
    return next((kind for kind, words in _KINDS if words.search(plain)), Kind.UNKNOWN)


# Words of lines that state a requirement.
ASKING = re.compile(
    r"experience|\byears?\b|degree|bachelor|master.s|ph\.?d|proficien|knowledge|familiar|ability to"
    r"|understanding|fluen|expertise|background|track record|\bskills?\b|certif|passion|comfortable"
    r"|^(?:you|strong|excellent|proven|solid|demonstrated|able|willing|capable|must)\b|\beligib"
    r"|licen[sc]e|erfahr|kenntniss|abschluss|studium|ausbildung|fähigkeit|sicher im|bereitschaft"
    r"|expérience|maîtris|diplôme|connaissance|capacité|formation|bac ?\+|aisance|esperienza|laurea"
    r"|conoscenz|experiencia|conocimiento|titulación|dominio|capacidad|licenciatura|experiência"
    r"|conhecimento|ervaring|kennis|diploma|erfarenhet|kunskap|utbildning|erfaring|doświadczeni"
    r"|znajomość|wykształceni|kokemus|zkušenost|deneyim|tapasztalat|опыт|знани|経験|知識|经验|경험",
    re.IGNORECASE,
)
# Sums of money as they stand in a pay range.
MONEY_RANGE = re.compile(
    r"(?:USD|EUR|GBP|CAD|AUD|[$€£])\s?\d(?:[\d,.']*\d)?\s?[kK]?\s*(?:/\w+\s*)?"
    r"(?:[-–—]|to|and|bis|à|a)+\s*(?:USD|EUR|GBP|CAD|AUD|[$€£])?\s?\d(?:[\d,.']*\d)?\s?[kK]?"
    r"(?:\s*(?:USD|EUR|GBP|CAD|AUD|€|£))?"
)
# Statements after the last list of a posting, under any heading or none: equal opportunities, data
# protection, and how to apply.
CLOSING = re.compile(
    r"equal.{0,12}opportunit|discriminat|regardless of|without regard to|protected veteran"
    r"|accommodation|fair chance|criminal histor|e-verify|background check|privacy (?:policy|notice)"
    r"|chancengleichheit|behinder|unabhängig von|diskrimin|(?<!\w)frauen"
    r"|égalité|handicap|igualdad|igualdade|discapacidad|deficiência|pari opportunità|con disabil|sexe\b"
    r"|gelijke kansen|likabehandling|funktions|niezależnie od|niepełnospr|rodo\b|datenschutz|性別|障が?い"
    r"|\bapply (?:by|before|through|via|with|at|to)\b|send .{0,30}(?:cv|r[ée]sum[ée]|application|letter)"
    r"|bewerbung|candidature|postule[rz]|sollicit|ansökan|søknad|aplikac|curr[ií]cul|応募"
    r"|©|copyright|all rights reserved|\bcookies\b|further information|weitere informationen|@\w+[\w.-]*\.\w+",
    re.IGNORECASE,
)
# Statements on pay; where they stand among other paragraphs, they are left there.
PAY = re.compile(
    r"(?:salary|pay|compensation|hiring) range|base (?:pay|salary|compensation)|401\(?k"
    r"|health insurance|our benefits|" + MONEY_RANGE.pattern,
    re.IGNORECASE,
)
# What buttons and links to apply say.
APPLY = re.compile(
    r"((easy |quick )?apply(\W*$|\s+(now|here|today|online|directly|for|to|with|via|on|as)\b)"
    r"|submit (your )?application|i.m interested|(jetzt |online )?bewerben|(je )?postuler?"
    r"|candidater|aplicar|inscr[ií]b|solicitar|candidatar|candid(ati|ate-se)\b|(direct )?sollicit"
    r"|ansök|søk (på|stilling)|aplikuj|hae (paikkaa|nyt)|応募|エントリー|申请|投递|지원하기|откликнуться)",
    re.IGNORECASE,
)
# Words of jobs that few other pages have. Every page is searched for those of its language; without
# its first letter, a word is found in capitals, too.
_HINTS = {
    "en": "equirement ualification esponsibilit hat_you’ll hat_you'll hat_you\\u2019ll n_this_role"
    " ull-time ull_time EQUIREMENT UALIFICATION",
    "de": "as_erwartet nforderung ufgaben ein_Profil hr_Profil ewerbung",
    "fr": "ompétences otre_profil rofil_recherché xigences os_missions",
    "es": "equisitos unciones frecemos erfil",
    "pt": "equisitos erfil ualifica tividades",
    "it": "equisiti ansioni sperienza andidat",
    "nl": "acature erkzaamheden unctie-eisen ollicit",
    "sv": "rbetsuppgift valifika nsök",
    "no": "valifika rbeidsoppgaver øknad",
    "da": "valifika rbejdsopgaver nsøg",
    "pl": "ymagani bowiązk ferujemy",
    "fi": "ehtävä okemus",
    "cs": "ožaduj ápln_práce abízíme",
    "ru": "ребовани бязанност",
    "ja": "仕事内容 業務内容 応募 必須",
    "zh": "职责 任职 要求 職位",
    "ko": "자격 업무 지원",
}


def hints_at_job(text: str, language: str | None = None) -> bool:
    """Whether words of jobs occur, in English or the language, or any if that is not known."""
    known = (language or "")[:2].lower()
    lines = [_HINTS["en"], _HINTS[known]] if known in _HINTS else _HINTS.values()
    words = dict.fromkeys(word.replace("_", " ") for line in lines for word in line.split())
    return any(word in text for word in words)
