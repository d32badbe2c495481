import type { Invoke } from '#contracts'
import { ConfinedProcess, ProcessEndedError } from './confined-process.ts'

/** Where more are suspected at once, something else ended the process they ran in: the others run as ever. */
const MAX_PROCESSES = 4
/** Of each of them, where this process and they have no limit together. */
const HEAP_MB = 512
/** Of what this process and they may have together, for the heap of one of them. */
const HEAP_SHARE = 1 / 8
/** For the next suspect: to load the functions takes a fifth of a second of a processor. */
const KEPT_MS = 10_000

/**
 * The same functions, each call alone in a process: an endless loop, a full heap or process.exit() end that and nothing
 * else. A process whose calls have come back and left nothing behind serves the next one; if it ends in that all the same,
 * whose fault it is cannot be known, so the call is made once more in a process of its own.
 */
export function isolation(
  files: readonly string[],
  heapMb = heapWithin(process.constrainedMemory()),
): (reconciler: string, otherwise: Invoke) => Invoke {
  /** At most one: more are wanted only where something else has ended many runs. */
  let idle: ConfinedProcess | undefined
  let busy = 0

  const keep = (used: ConfinedProcess): void => {
    if (idle !== undefined || !used.isReusable) return void used.end()
    idle = used
    used.rest(KEPT_MS)
  }

  const callApart = async (reconciler: string, ...[input, context]: Parameters<Invoke>): ReturnType<Invoke> => {
    // A call that changes something is not made twice because the process of another call has ended.
    const used = idle?.isReusable && input.ask !== 'perform' ? idle : undefined
    if (used !== undefined || !idle?.isReusable) idle = undefined
    const confined = used ?? new ConfinedProcess(files, heapMb)
    try {
      const answer = await confined.call(reconciler, input, context)
      await confined.settles()
      keep(confined)
      return answer
    } catch (error) {
      // The key may run again when this rejects.
      await confined.end()
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

/** Zero, or more than there is: without a limit. */
export function heapWithin(bytes: number): number {
  const share = Math.floor((bytes * HEAP_SHARE) / 2 ** 20)
  return share > 0 ? Math.min(HEAP_MB, share) : HEAP_MB
}
