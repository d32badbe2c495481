/** What a message of Fairlead on NATS is, by its subject. */
export function kindOf(subject: string): string {
  const parts = subject.split('.')
  const [role = '', second, third = '', fourth] = parts
  if (role === 'key') return second === '_' ? 'WORK: mark' : `WORK: record, ${STATES[third.charAt(0)] ?? third}`
  if (role === 'k8s') return `EVENTS: ${fourth} stored`
  if (role === '$JS') return second === 'ACK' ? `${third}: acknowledgement` : requestOf(parts.slice(2))
  return ROLES[role] ?? 'other'
}

const ROLES: Record<string, string> = { cursor: 'EVENTS: cursor', work: 'WORK: token', done: 'WORK: record ended' }
const STATES: Record<string, string> = { r: 'running', w: 'waiting', p: 'parked' }

const requestOf = (parts: string[]): string => {
  const [kind, what, how, stream] = parts
  if (kind === 'DIRECT') return `${how}: read`
  if (kind === 'CONSUMER' && what === 'MSG') return `${stream}: pull`
  if (kind === 'STREAM' && what === 'MSG') return `${stream}: ${how === 'GET' ? "leader's read" : 'removal'}`
  return `${parts.at(-1)}: ${kind} ${what}`
}
