import type { IncomingMessage } from 'node:http'
import type { Refusal } from './types.ts'

/** The hosts of `kubectl port-forward`. */
const ALWAYS = ['localhost', '127.0.0.1', '[::1]']

/**
 * Refuses a request to another host than those of the console, and one that a page of another host sends. Ports do not count
 * among the hosts: `kubectl port-forward` chooses one.
 */
export function originRefusal(
  { headers }: Pick<IncomingMessage, 'headers'>,
  hosts: readonly string[],
): Refusal | undefined {
  const { host = '', origin } = headers
  const name = urlOf(`http://${host}`)?.hostname
  if (name === undefined || ![...ALWAYS, ...hosts].includes(name))
    return refused(`${JSON.stringify(host)} is not a host of this console: name it in FAIRLEAD_CONSOLE_HOSTS`)
  if (origin !== undefined && !isSame(origin, host))
    return refused(`the page of ${JSON.stringify(origin)} may not use this console`)
  if (headers['sec-fetch-site'] === 'cross-site' && headers['sec-fetch-mode'] !== 'navigate')
    return refused('a page of another site may not use this console')
  return undefined
}

const urlOf = (text: string): URL | undefined => URL.parse(text) ?? undefined

/** The console does not know by which protocol the page came: a proxy may have ended TLS. */
function isSame(origin: string, host: string): boolean {
  const page = urlOf(origin)
  return page !== undefined && page.host !== '' && page.host === urlOf(`${page.protocol}//${host}`)?.host
}

const refused = (message: string): Refusal => ({ status: 403, message })
