import { readFileSync } from 'node:fs'
import { request } from 'node:https'
import { join } from 'node:path'
import type { ProcessGroup } from './processes.ts'

/** The few requests that starting an API server needs. Other code uses a real client. */
export interface ApiProbe {
  /** Returns the HTTP status of a GET; 0 without an answer. */
  status(path: string): Promise<number>
  /** Creates an object with a POST; 409 counts as success. */
  create(path: string, object: object): Promise<void>
}

const TIMEOUT_MS = 5000

/** A probe of the cluster in that folder, with the administrator's certificate. */
export function probeOf(dir: string, server: string): ApiProbe {
  const pem = (name: string): Buffer => readFileSync(join(dir, 'pki', name))
  const login = { ca: pem('ca.crt'), cert: pem('admin.crt'), key: pem('admin.key'), timeout: TIMEOUT_MS }

  const send = (method: string, path: string, body?: object): Promise<number> =>
    new Promise((resolve) => {
      const headers = { 'content-type': 'application/json', connection: 'close' }
      const sent = request(`${server}${path}`, { ...login, method, headers, agent: false }, (answer) => {
        answer.resume()
        answer.once('close', () => resolve(answer.statusCode ?? 0))
      })
      sent.once('timeout', () => sent.destroy())
      sent.once('close', () => resolve(0))
      sent.once('error', () => resolve(0))
      sent.end(body && JSON.stringify(body))
    })

  return {
    status: (path) => send('GET', path),
    async create(path, object) {
      const status = await send('POST', path, object)
      if (status !== 201 && status !== 409)
        throw new Error(`POST ${path}: the API server answered ${status || 'nothing'}`)
    },
  }
}

/** Returns when kube-apiserver takes requests. */
export async function apiServerReady(processes: ProcessGroup, probe: ApiProbe): Promise<void> {
  const isReady = async (): Promise<boolean> => (await probe.status('/readyz')) === 200
  await processes.waitFor('kube-apiserver', isReady, 120_000, ['etcd', 'kube-apiserver'])
}
