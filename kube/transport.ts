import { type ClientRequest, type IncomingMessage, Agent as PlainAgent, request as plainRequest } from 'node:http'
import { request as secureRequest, Agent as TlsAgent } from 'node:https'
import { isReset } from './connection-errors.ts'
import { type Exchange, exchange, KEEPALIVE_AFTER_MS } from './exchange.ts'
import { serverAddress, tlsOptions } from './server.ts'
import type { ClusterAccess } from './types.ts'

/** One request, as it is sent. */
export interface Call extends Exchange {
  /** Path and query. */
  target: string
  headers: Record<string, string | number>
  /** Uses a connection of its own, and closes it afterwards. */
  alone?: boolean
}

export interface Transport {
  /** `host:port`. */
  readonly host: string
  /** Hands the head of the answer to `use`, which reads the body. Rejects with ApiConnectionError or the signal's reason. */
  send<T>(call: Call, use: (answer: IncomingMessage) => Promise<T>): Promise<T>
  close(): void
}

/** A kube-apiserver closes a connection that is idle for 90 s (Kubernetes 1.36). The client closes it earlier. */
const IDLE_MS = 60_000

/** HTTP/1.1 over persistent connections. docs/decisions/0005-http-client.md gives the reasons against HTTP/2. */
export function createTransport(access: ClusterAccess, maxSockets: number): Transport {
  const { secure, host, hostname, port, prefix } = serverAddress(access)
  const AgentOf = secure ? TlsAgent : PlainAgent
  const tls = secure ? tlsOptions(access) : {}
  const kept = new AgentOf({
    ...tls,
    keepAlive: true,
    keepAliveMsecs: KEEPALIVE_AFTER_MS,
    timeout: IDLE_MS,
    maxSockets,
  })
  const single = new AgentOf({ ...tls, keepAlive: false })

  const start = ({ method, target, headers, alone }: Call): ClientRequest =>
    (secure ? secureRequest : plainRequest)({
      hostname,
      port,
      method,
      path: prefix + target,
      headers,
      agent: alone === true ? single : kept,
    })

  return {
    host,
    async send(call, use) {
      call.signal?.throwIfAborted()
      const request = start(call)
      try {
        return await exchange(request, host, call, use)
      } catch (error) {
        if (!(call.method === 'GET' && request.reusedSocket && isReset(error))) throw error
        return await exchange(start(call), host, call, use)
      }
    },
    close() {
      kept.destroy()
      single.destroy()
    },
  }
}
