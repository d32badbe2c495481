/** In any W seconds, at most perSecond × W + burst runs begin. Returns the windows in which more have begun. */
export function tooMany(
  starts: readonly number[],
  { perSecond, burst }: { perSecond: number; burst: number },
): string[] {
  const times = [...starts].sort((one, other) => one - other)
  return times.flatMap((first, index) =>
    times.slice(index + 1).flatMap((last, between) => {
      const runs = between + 2
      const permitted = ((last - first) / 1000) * perSecond + burst
      return runs > permitted ? [`${runs} runs in ${last - first} ms, of ${permitted}`] : []
    }),
  )
}
