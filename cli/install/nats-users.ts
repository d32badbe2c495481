import { textOf } from './chart/templated.ts'

interface User {
  user: string
  permissions?: { publish: string[]; subscribe: string[] }
}
interface Account {
  users: User[]
  exports?: { service: string }[]
  imports?: { to?: string; service: { account: string; subject: string } }[]
}

/** The accounts of deploy/nats/users.conf, by name. */
type NatsAccounts = Record<string, Account>

/** Returns users.conf of deploy/nats with the permissions for installations with these prefixes too. */
export async function natsUsers(prefixes: readonly string[]): Promise<string> {
  const text = await textOf('nats/users.conf')
  const accounts = accountsFor(accountsIn(text), ['', ...prefixes])
  return `# Made by: fairlead generate nats-users ${prefixes.join(' ')}\naccounts: ${JSON.stringify(accounts, null, 1)}\n`
}

export const accountsIn = (text: string): NatsAccounts =>
  JSON.parse(text.replaceAll(/^#.*$/gm, '').replace('accounts:', '')) as NatsAccounts

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
  return subject.replace(/\.(EVENTS|WORK|DEAD|RUNS)\b/, `.${prefix}_$1`)
}

const distinct = <T>(all: readonly T[]): T[] => [...new Map(all.map((one) => [JSON.stringify(one), one])).values()]
