/**
 * As Promise.all(), but rejects only when all have ended: nothing goes on behind the back of a caller that clears up
 * after the failure.
 */
export async function allEnded<const Work extends readonly unknown[]>(
  work: Work,
): Promise<{ -readonly [Index in keyof Work]: Awaited<Work[Index]> }> {
  await Promise.allSettled(work)
  return Promise.all(work)
}
