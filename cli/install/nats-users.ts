import { textOf } from './chart/templated.ts'

interface User {
  user: string
  permissions?: { publish: string[]; subscribe: string[] }
}
interface Account {
  users: User[]
  exports?: { service: string; accounts?: string[] }[]
  imports?: { to?: string; service: { account: string; subject: string } }[]
}

/** The accounts of deploy/nats/users.conf, by name. */
type NatsAccounts = Record<string, Account>

/** A user who may cause runs of these Reconcilers, and nothing else. */
export interface TriggerUser {
  name: string
  reconcilers: readonly string[]
}

/**
 * Returns users.conf of deploy/nats with the permissions for installations with these prefixes too, and these users. Each of
 * the clusters has accounts and users of its own.
 */
export async function natsUsers(
  prefixes: readonly string[],
  triggers: readonly TriggerUser[] = [],
  clusters: readonly string[] = [],
): Promise<string> {
  const shipped = withTriggers(accountsIn(await textOf('nats/users.conf')), triggers)
  const accounts = { ...accountsFor(shipped, ['', ...prefixes]), ...accountsOf(shipped, clusters, prefixes) }
  const given = [
    ...prefixes,
    ...triggers.map(({ name, reconcilers }) => `--trigger ${name}=${reconcilers.join(',')}`),
    ...(clusters.length > 0 ? [`--cluster-users ${clusters.join(',')}`] : []),
  ]
  return `# Made by: fairlead generate nats-users ${given.join(' ')}\naccounts: ${JSON.stringify(accounts, null, 1)}\n`
}

/** A user who triggers is in the account of the streams, and has no permission for them. */
export function withTriggers({ FAIRLEAD, ...others }: NatsAccounts, triggers: readonly TriggerUser[]): NatsAccounts {
  const users = triggers.map(({ name, reconcilers }) => ({
    user: `fairlead-trigger-${name}`,
    permissions: {
      publish: reconcilers.map((one) => `trigger.${one.replaceAll('.', '_')}`).flatMap((one) => [one, `${one}.>`]),
      subscribe: [`_INBOX.trigger.${name}.>`],
    },
  }))
  return { FAIRLEAD: { ...FAIRLEAD, users: [...(FAIRLEAD?.users ?? []), ...users] }, ...others }
}

export const accountsIn = (text: string): NatsAccounts =>
  JSON.parse(text.replaceAll(/^#.*$/gm, '').replace('accounts:', '')) as NatsAccounts

/**
 * Returns accounts for each cluster, with the streams under its prefix and its shards. A common account would not keep clusters
 * apart: a user of the JetStream API chooses the subject of the answer, and so can store messages in each stream of its account.
 */
export function accountsOf(
  shipped: NatsAccounts,
  clusters: readonly string[],
  shards: readonly string[] = [],
): NatsAccounts {
  return Object.assign(
    {},
    ...clusters.map((cluster) => {
      const named = (account: string) => `${account}-${cluster}`
      const prefixes = [cluster, ...shards.map((shard) => `${cluster}-${shard}`)]
      const accounts = Object.entries(accountsFor(shipped, prefixes)).map(
        ([name, { users, exports, imports, ...more }]) => [
          named(name),
          {
            ...more,
            users: users.map(({ user, ...rest }) => ({ user: `${user}.${cluster}`, ...rest })),
            ...(exports && { exports: exports.map((one) => ({ ...one, accounts: one.accounts?.map(named) })) }),
            ...(imports && {
              imports: imports.map(({ service, ...one }) => ({
                ...one,
                service: { ...service, account: named(service.account) },
              })),
            }),
          },
        ],
      )
      return Object.fromEntries(accounts)
    }),
  )
}

/** Returns the accounts with the permissions for exactly these prefixes; '' stands for an installation without a prefix. */
export function accountsFor(accounts: NatsAccounts, prefixes: readonly string[]): NatsAccounts {
  const each = <T>(all: readonly T[], of: (one: T, prefix: string) => T): T[] =>
    distinct(all.flatMap((one) => prefixes.map((prefix) => of(one, prefix))))
  const subjects = (all: readonly string[]) => each(all, prefixed)
  const entries = Object.entries(accounts).map(([name, { users, exports, imports, ...more }]) => {
    const account: Account = {
      ...more,
      users: users.map(({ permissions, ...user }) => ({
        ...user,
        ...(permissions && {
          permissions: { publish: subjects(permissions.publish), subscribe: subjects(permissions.subscribe) },
        }),
      })),
      ...(exports && { exports: each(exports, (one, prefix) => ({ ...one, service: prefixed(one.service, prefix) })) }),
      ...(imports && {
        imports: each(imports, ({ to, service, ...one }, prefix) => ({
          ...(to !== undefined && { to: prefixed(to, prefix) }),
          service: { ...service, subject: prefixed(service.subject, prefix) },
          ...one,
        })),
      }),
    }
    return [name, account] as const
  })
  return Object.fromEntries(entries)
}

/** Returns the subject of an installation with that FAIRLEAD_PREFIX. */
function prefixed(subject: string, prefix: string): string {
  if (prefix === '' || subject.startsWith('_INBOX.')) return subject
  if (!/^(\$JS|FAIRLEAD\.API)\./.test(subject)) return `${prefix}.${subject}`
  return subject.replace(/\.(EVENTS|WORK|DEAD|RUNS|USAGE)\b/, `.${prefix}_$1`)
}

const distinct = <T>(all: readonly T[]): T[] => [...new Map(all.map((one) => [JSON.stringify(one), one])).values()]
