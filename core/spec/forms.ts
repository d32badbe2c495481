import { z } from 'zod'

/* The forms of the names in a Reconciler, and in the records of its runs. */

const DNS_LABEL = '[a-z0-9]([-a-z0-9]*[a-z0-9])?'

/** The form of a namespace's name, which becomes part of API paths and NATS subjects. */
export const NAMESPACE_NAME = new RegExp(`^(?=.{1,63}$)${DNS_LABEL}$`)
export const namespace = z
  .string()
  .max(63)
  .regex(new RegExp(`^${DNS_LABEL}$`), 'lower-case letters, digits and -, a letter or digit at both ends')

export const accountName = z
  .string()
  .max(253)
  .regex(new RegExp(String.raw`^${DNS_LABEL}(\.${DNS_LABEL})*$`), 'lower-case letters, digits, - and .')

/**
 * Excludes names that would change the API path: such a path could lead to Secrets under another name, and their
 * contents would not be recognised as confidential.
 */
const segment = z
  .string()
  .min(1)
  .regex(/^[a-z]([-a-z0-9]*[a-z0-9])?$/, 'lower-case letters, digits and -, a letter first')

export const resourceRef = {
  group: z
    .string()
    .max(253)
    .regex(/^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$/, 'lower-case letters, digits, - and .')
    .describe('API group; empty for the core group.'),
  version: segment.max(63),
  resource: segment.max(253).describe('Plural name as in API paths, e.g. pods.'),
  kind: z
    .string()
    .max(63)
    .regex(/^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$/, 'letters, digits and -, a letter first'),
}
