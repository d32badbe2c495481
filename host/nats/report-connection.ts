import type { JetStream } from '#jetstream'

const LOOK_EVERY_MS = 250
/** The sum of this and LOOK_EVERY_MS is below two seconds. */
const SILENT_MS = 1500

type Log = Record<'info' | 'warn', (fields: object, message: string) => void>

/**
 * Logs within two seconds that NATS is unreachable, and logs its return, each once. A server that ends closes the
 * connection; one that hangs answers no ping and sends no other data.
 */
export function reportConnection(js: JetStream, log: Log): void {
  const { nc } = js
  let goneSince: number | undefined
  const gone = (because: string) => {
    if (goneSince !== undefined || nc.isClosed()) return
    goneSince = performance.now()
    log.warn({ server: nc.getServer(), because }, 'NATS is gone: work goes on when it is back')
  }
  const back = () => {
    if (goneSince === undefined) return
    const afterSeconds = Math.round((performance.now() - goneSince) / 100) / 10
    goneSince = undefined
    log.info({ server: nc.getServer(), afterSeconds }, 'NATS is back')
  }

  let isConnected = true
  /** Since when an answer is due, or the time of the last byte; undefined if no answer is due. */
  let silentSince: number | undefined
  let bytes = 0
  const settled = (isAnswered: boolean) => {
    silentSince = undefined
    if (isAnswered) back()
  }
  // Data that arrived while this process was busy is read before the silence is judged.
  const judge = () => {
    if (silentSince !== undefined && performance.now() - silentSince > SILENT_MS) gone('it does not answer')
  }
  const look = () => {
    if (nc.isClosed()) return clearInterval(timer)
    if (!isConnected) return
    const { inBytes } = nc.stats()
    if (silentSince === undefined) {
      silentSince = performance.now()
      nc.flush().then(
        () => settled(true),
        () => settled(false),
      )
    } else if (inBytes === bytes) setImmediate(judge)
    else silentSince = performance.now()
    bytes = inBytes
  }
  const timer = setInterval(look, LOOK_EVERY_MS).unref()
  js.onDisconnect(() => {
    isConnected = false
    gone('the connection has dropped')
  })
  js.onReconnect(() => {
    isConnected = true
    back()
  })
}
