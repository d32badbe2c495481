import type { KubeObject } from '#contracts'

/** Kubernetes 1.36, pkg/registry/rbac/validation: one line for each rule that the account lacks. */
const ESCALATION = /user "([^"]*)" \(groups=.*?\) is attempting to grant RBAC permissions not currently held:\n(.*)/s

/**
 * Explains a refusal because the account grants more than it has. Returns the lacking permissions and the fix in two
 * sentences, or undefined if the message is a different refusal.
 */
export function escalationIn(message: string, { kind, metadata, roleRef }: KubeObject): string | undefined {
  const [, user, lines] = ESCALATION.exec(message) ?? []
  if (user === undefined || lines === undefined) return undefined
  const [first, ...others] = lines.split('\n').map((line) => line.slice(0, line.lastIndexOf('}') + 1))
  const more = others.length === 0 ? '' : ` and ${others.length} more`
  const lacking = `${user} would grant rights that it does not have: ${first}${more}`
  const role = roleRef as { kind: string; name: string } | undefined
  if (role === undefined)
    return `${lacking}. Give it these rights, or the verb escalate on ${kind.toLowerCase()}s ${metadata.name}`
  return (
    `${lacking}. Add { kind: '${role.kind}', name: '${role.name}' } to "binds" of the function and install it again, so ` +
    'that it has the verb bind on this role, or give it these rights'
  )
}
