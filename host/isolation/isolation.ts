import type { Invoke } from '#contracts'
import { ConfinedProcess, ProcessEndedError } from './confined-process.ts'

/**
 * If more calls are suspected at the same time, something other than a function has ended their process: the further
 * calls run without isolation.
 */
const MAX_PROCESSES = 4
/** The highest heap limit of an isolated process, in MiB. */
const HEAP_MB = 512
/** The share of the memory limit that this process and isolated processes have together, for the heap of one of them. */
const HEAP_SHARE = 1 / 8
/** The time for which a process is kept for the next suspected call. Loading the functions takes 0.2 s of CPU time. */
const KEPT_MS = 10_000

/**
 * Returns the functions with each call isolated in a process: an endless loop, a full heap or process.exit() ends only
 * that process. A process that has answered and has nothing pending is reused. If a reused process ends during a call,
 * either call may be the cause, so the call is repeated in a process of its own.
 */
export function isolation(
  files: readonly string[],
  heapMb = heapWithin(process.constrainedMemory()),
): (reconciler: string, otherwise: Invoke) => Invoke {
  /** At most one process: several would only be needed after something else has ended many runs. */
  let idle: ConfinedProcess | undefined
  let busy = 0

  const keep = (used: ConfinedProcess): void => {
    if (idle !== undefined || !used.isReusable) return void used.end()
    idle = used
    used.rest(KEPT_MS)
  }

  const callApart = async (reconciler: string, ...[input, context]: Parameters<Invoke>): ReturnType<Invoke> => {
    // A call that changes something is not repeated after the process of another call has ended.
    const used = idle?.isReusable && input.ask !== 'perform' ? idle : undefined
    if (used !== undefined || !idle?.isReusable) idle = undefined
    const confined = used ?? new ConfinedProcess(files, heapMb)
    try {
      const answer = await confined.call(reconciler, input, context)
      await confined.settles()
      keep(confined)
      return answer
    } catch (error) {
      // The key may run again as soon as this rejects.
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

/** Returns the heap limit in MiB. `bytes` is the memory limit; 0, or more than the machine has, stands for no limit. */
export function heapWithin(bytes: number): number {
  const share = Math.floor((bytes * HEAP_SHARE) / 2 ** 20)
  return share > 0 ? Math.min(HEAP_MB, share) : HEAP_MB
}
