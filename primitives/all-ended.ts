/**
 * Behaves as Promise.all(), but rejects only when all promises have settled. A caller that cleans up after the failure
 * can rely on it that no work continues in the background.
 */
export async function allEnded<const Work extends readonly unknown[]>(
  work: Work,
): Promise<{ -readonly [Index in keyof Work]: Awaited<Work[Index]> }> {
  await Promise.allSettled(work)
  return Promise.all(work)
}
