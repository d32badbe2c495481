/**
 * Acts on each item, with at most this many actions under way. Resolves with the number of items. Rejects with the first
 * failure; after that no action begins.
 */
export async function forEachAtMost<Item>(
  most: number,
  items: Iterable<Item> | AsyncIterable<Item>,
  act: (item: Item, index: number) => Promise<void>,
): Promise<number> {
  // A generator answers concurrent calls of next() one by one, in order.
  const iterator = Symbol.asyncIterator in items ? items[Symbol.asyncIterator]() : items[Symbol.iterator]()
  let count = 0
  let isFailed = false
  const worker = async () => {
    for (let next = await iterator.next(); !isFailed && next.done !== true; next = await iterator.next()) {
      try {
        await act(next.value, count++)
      } catch (error) {
        isFailed = true
        throw error
      }
    }
  }
  try {
    await Promise.all(Array.from({ length: most }, worker))
  } catch (error) {
    void closed(iterator)
    throw error
  }
  return count
}

/** The results of all items, in their order. */
export async function mapAtMost<Item, Result>(
  most: number,
  items: readonly Item[],
  act: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = []
  await forEachAtMost(Math.min(most, items.length), items, async (item, index) => {
    results[index] = await act(item)
  })
  return results
}

async function closed(iterator: Iterator<unknown> | AsyncIterator<unknown>): Promise<void> {
  await Promise.resolve(iterator.return?.()).catch(() => undefined)
}
