import { EXIT } from './exit.ts'

/** Somebody wants the command to end; its message is the signal. */
class StopRequest extends Error {
  override readonly name = 'AbortError'
}

/** Aborted at the first SIGINT, SIGTERM or SIGHUP; a second one ends the process at once. */
export function untilStopped(): AbortController {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(EXIT.interrupted)
      controller.abort(new StopRequest(name))
    })
  return controller
}

/** After the grace, which is for runs in flight: to hand back the rest takes 4 s at most. */
const AFTER_GRACE_SECONDS = 5

/** A server that does not answer keeps nobody from stopping. Nothing is lost by it that `kill -9` would not lose. */
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
