import { EXIT } from './exit.ts'

/** A signal that ends the command. The message is the signal's name. */
class StopRequest extends Error {
  override readonly name = 'AbortError'
}

/** Returns a controller that the first SIGINT, SIGTERM or SIGHUP aborts; a second signal ends the process at once. */
export function untilStopped(): AbortController {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(EXIT.interrupted)
      controller.abort(new StopRequest(name))
    })
  return controller
}

/** Time after the grace period of runs in flight. Handing back the remaining keys takes 4 s at most. */
const AFTER_GRACE_SECONDS = 5

/**
 * Ends the process after the grace period even if a server does not answer. This loses no more than `kill -9` would.
 */
export function endInTime(stop: AbortSignal, graceSeconds: number, fatal: (error: Error) => void): void {
  const late = () =>
    fatal(
      new Error(
        `stopped without NATS or the API server, which did not answer within ${AFTER_GRACE_SECONDS} s after the grace of ${graceSeconds} s: keys in hand are run again when their leases end`,
      ),
    )
  const wait = () => setTimeout(late, (graceSeconds + AFTER_GRACE_SECONDS) * 1000).unref()
  stop.addEventListener('abort', wait, { once: true })
}
