/** Aborted at the first SIGINT, SIGTERM or SIGHUP; a second one ends the process at once. */
export function untilStopped(): AbortController {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(130)
      controller.abort(name)
    })
  return controller
}
