// On every page: times in the reader's zone, and a question before what cannot be undone.

const format = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric",
  hour: "2-digit", minute: "2-digit", second: "2-digit",
});

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
