/** Keeps an entry as the newest, and of all no more than so many: the oldest goes. */
export function keepNewest<Key, Value>(entries: Map<Key, Value>, key: Key, value: Value, most: number): void {
  entries.delete(key)
  entries.set(key, value)
  const oldest = entries.keys().next()
  if (entries.size > most && oldest.done !== true) entries.delete(oldest.value)
}
