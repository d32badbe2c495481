import type { Invoke } from '#contracts'
import { ConfinedProcess, ProcessEndedError } from './confined-process.ts'

/** Where more are suspected at once, something else ended the process they ran in: the others run as ever. */
const MAX_PROCESSES = 4
/** Of each of them. */
const HEAP_MB = 512
/** For the next suspect: to load the functions takes a fifth of a second of a processor. */
const KEPT_MS = 10_000

/**
 * The same functions, each call alone in a process: an endless loop, a full heap or process.exit() end that and nothing
 * else. A process whose calls have all come back serves the next one; if it ends in that, whose fault it is cannot be
 * known, so the call is made once more in a process of its own.
 */
export function isolation(
  files: readonly string[],
  heapMb = HEAP_MB,
): (reconciler: string, otherwise: Invoke) => Invoke {
  const idle = new Set<ConfinedProcess>()
  let busy = 0

  const keep = (used: ConfinedProcess): void => {
    idle.add(used)
    used.rest(KEPT_MS, () => idle.delete(used))
  }

  const callApart = async (reconciler: string, ...[input, context]: Parameters<Invoke>): ReturnType<Invoke> => {
    const [used] = idle
    if (used) idle.delete(used)
    const confined = used ?? new ConfinedProcess(files, heapMb)
    try {
      const outcome = await confined.call(reconciler, input, context)
      keep(confined)
      return outcome
    } catch (error) {
      confined.end()
      if (used === undefined || !(error instanceof ProcessEndedError)) throw error
      return callApart(reconciler, input, context)
    }
  }

  return (reconciler, otherwise) => async (input, context) => {
    if (busy >= MAX_PROCESSES) return otherwise(input, context)
    busy++
    try {
      return await callApart(reconciler, input, context)
    } finally {
      busy--
    }
  }
}
