import { $$ } from './dom.js'

/** `3m10s`, as the server writes it. */
function duration(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  if (seconds < 60) return `${seconds}s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 10) return `${minutes}m${seconds % 60}s`
  if (minutes < 180) return `${minutes}m`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours}h${minutes % 60}m` : `${Math.floor(hours / 24)}d`
}

/** Counts up the ages on the page, and counts down its timers. */
export function count() {
  const now = Date.now()
  for (const time of $$('time')) {
    const at = Date.parse(time.dateTime)
    const text = duration(time.className === 'ahead' ? at - now : now - at)
    if (time.textContent !== text) time.textContent = text
  }
}
