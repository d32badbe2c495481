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
