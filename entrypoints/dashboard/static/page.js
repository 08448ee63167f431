// On every page: times in the reader's zone, and a question before what cannot be undone.

const format = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric",
  hour: "2-digit", minute: "2-digit", second: "2-digit",
});

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const shortDay = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** Short, where there are many: the day only if it is not today. */
export function lineTime(iso) {
  const at = new Date(iso);
  const today = at.toDateString() === new Date().toDateString();
  return today ? clock.format(at) : `${shortDay.format(at)} ${clock.format(at)}`;
}

export function localTime(iso) {
  return format.format(new Date(iso));
}

/** Times below this element, which were written in UTC. Their titles keep UTC. */
export function showLocalTimes(below) {
  for (const time of below.querySelectorAll("time[datetime]")) {
    time.textContent = localTime(time.dateTime);
  }
}

showLocalTimes(document);

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.ask;
  if (question && !confirm(question)) event.preventDefault();
});
