import { readFileSync } from 'node:fs'
import { accountsFor, accountsIn, accountsOf, type TriggerUser, withTriggers } from '#install'
import type { Nats } from '#lab'
import { startTestNats } from './servers.ts'

const USERS = readFileSync(new URL('../../deploy/nats/users.conf', import.meta.url), 'utf8')

interface User {
  user: string
  password?: string
  permissions?: { publish: string[]; subscribe: string[] }
}
interface Accounts {
  [name: string]: { users: User[] }
  FAIRLEAD: { users: User[] }
}

/**
 * The accounts of deploy/nats/users.conf, with these users who trigger, and those of clusters, as nats-server's configuration has
 * them.
 */
export function shippedAccounts(
  prefixes: readonly string[] = [''],
  triggers: readonly TriggerUser[] = [],
  clusters: readonly string[] = [],
): Accounts {
  const shipped = withTriggers(accountsIn(USERS), triggers)
  return { ...accountsFor(shipped, prefixes), ...accountsOf(shipped, clusters) } as Accounts
}

type Role =
  | 'fairlead-bridge'
  | 'fairlead-dispatcher'
  | 'fairlead-inspect'
  | 'fairlead-operate'
  | 'fairlead-console'
  | 'fairlead-console-writes'
  | `fairlead-trigger-${string}`

/** A user of the installation, or of one of its clusters. */
export type ShippedUser = Role | `${Role}.${string}`

export interface ShippedNats extends Nats, AsyncDisposable {
  /** Addresses with the name and password of that user; those of the server itself may do everything. */
  as(url: string, user: ShippedUser): string
}

const PASSWORD = 'x'
const withUser = (url: string, user: string): string => url.replaceAll('://', `://${user}:${PASSWORD}@`)

/**
 * nats-server on plain TCP with the users of deploy/nats/users.conf, for installations with any of these prefixes. They have
 * a password instead of a certificate, and any inbox.
 */
export async function startShippedNats(
  prefixes: readonly string[],
  options: Parameters<typeof startTestNats>[0] = {},
): Promise<ShippedNats> {
  const accounts = shippedAccounts(prefixes)
  for (const { users } of Object.values(accounts))
    for (const user of users) {
      const { publish = [], subscribe = [] } = user.permissions ?? {}
      const others = subscribe.filter((subject) => !subject.startsWith('_INBOX.'))
      user.password = PASSWORD
      user.permissions = { publish, subscribe: ['_INBOX.>', ...others] }
    }
  accounts.FAIRLEAD.users.push({ user: 'admin', password: PASSWORD })
  const nats = await startTestNats({ ...options, accounts })
  const urls = nats.urls.map((url) => withUser(url, 'admin'))
  return {
    ...nats,
    url: urls.join(','),
    urls,
    as: (url, user) => url.replaceAll(`admin:${PASSWORD}@`, `${user}:${PASSWORD}@`),
  }
}
