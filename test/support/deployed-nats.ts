import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { TriggerUser } from '#install'
import type { Nats } from '#lab'
import { connectJetStream, type JetStream } from '#nats'
import { createPki } from '../../packages/lab/pki.ts'
import { shortTempDir, startTestNats } from './servers.ts'
import { type ShippedUser, shippedAccounts } from './shipped-users.ts'

/** The inbox prefixes that the processes of these users choose. */
const INBOXES: Partial<Record<ShippedUser, string>> = {
  'fairlead-bridge': '_INBOX.bridge',
  'fairlead-dispatcher': '_INBOX.dispatch',
  'fairlead-inspect': '_INBOX.queue',
  'fairlead-operate': '_INBOX.queue',
  'fairlead-console': '_INBOX.console',
  'fairlead-console-writes': '_INBOX.console',
}

/** The user of a cluster has the role of the one without. */
const roleOf = (user: string) => user.replace(/\..*$/, '') as ShippedUser

const inboxOf = (user: ShippedUser): string =>
  INBOXES[roleOf(user)] ?? roleOf(user).replace(/^fairlead-trigger-/, '_INBOX.trigger.')

/** Those in accounts without streams have the API of the account that has them. */
const isOutside = (user: string): boolean =>
  !['fairlead-bridge', 'fairlead-dispatcher'].includes(roleOf(user)) && !user.startsWith('fairlead-trigger-')
const apiOf = (user: ShippedUser) => (isOutside(user) ? { apiPrefix: 'FAIRLEAD.API' } : {})

export interface DeployedNats extends AsyncDisposable {
  nats: Nats
  /** The environment of a process that is this user. */
  as(user: string): Promise<Record<string, string>>
  connect(user: ShippedUser, name: string): Promise<JetStream>
}

/**
 * Starts nats-server over TLS with the users of deploy/nats: every client needs a certificate, and has only the
 * permissions of its user.
 */
export async function startDeployedNats({
  replicas = 1,
  shards = [],
  triggers = [],
  clusters = [],
}: {
  replicas?: 1 | 3
  shards?: readonly string[]
  triggers?: readonly TriggerUser[]
  clusters?: readonly string[]
} = {}): Promise<DeployedNats> {
  const dir = await shortTempDir()
  const pki = await createPki(join(dir, 'pki'))
  const { certFile, keyFile } = await pki.issue('nats', { cn: 'nats' }, ['localhost', '127.0.0.1'])
  const nats = await startTestNats({
    replicas,
    accounts: shippedAccounts(['', ...shards], triggers, clusters),
    tls: { cert_file: certFile, key_file: keyFile, ca_file: pki.caFile, verify_and_map: true },
  })
  const certificateOf = (user: string) => pki.issue(user, { cn: user }, [user])
  return {
    nats,
    async as(user) {
      const { certFile: NATS_CERT, keyFile: NATS_KEY } = await certificateOf(user)
      const api: Record<string, string> = isOutside(user) ? { NATS_API_PREFIX: 'FAIRLEAD.API' } : {}
      return { NATS_URL: nats.url, NATS_CA: pki.caFile, NATS_CERT, NATS_KEY, ...api }
    },
    async connect(user, name) {
      const options = { tls: { caFile: pki.caFile, ...(await certificateOf(user)) } }
      return connectJetStream({ servers: nats.url, name, inboxPrefix: inboxOf(user), ...apiOf(user), options })
    },
    async [Symbol.asyncDispose]() {
      await nats[Symbol.asyncDispose]()
      await rm(dir, { recursive: true })
    },
  }
}
