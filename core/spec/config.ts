import { z } from 'zod'
import { RetryAfterError } from '#contracts'

/* The configuration of one function: values that only the calls of its external system receive. */

const name = z
  .string()
  .min(1)
  .max(63)
  .regex(/^[a-z][A-Za-z0-9]*$/, 'letters and digits, a lower-case letter first')

const keyOf = (kind: string) =>
  z
    .object({
      name: z
        .string()
        .max(253)
        .regex(/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/, `the name of a ${kind}`),
      key: z
        .string()
        .max(253)
        .regex(/^[-._a-zA-Z0-9]+$/, `a key of a ${kind}`),
    })
    .optional()

const oneSource = 'give one of secret, configMap and audience'

const value = z
  .object({
    name: name.describe('What the function calls the value.'),
    secret: keyOf('Secret').describe('A key of a Secret in the namespace of the service account.'),
    configMap: keyOf('ConfigMap').describe('A key of a ConfigMap in the namespace of the service account.'),
    audience: z
      .string()
      .min(1)
      .max(1000)
      .optional()
      .describe('A token of the service account for this audience alone, such as sts.amazonaws.com.'),
  })
  .refine(({ secret, configMap, audience }) => [secret, configMap, audience].filter(isGiven).length === 1, oneSource)
  .meta({
    'x-kubernetes-validations': [
      {
        rule: '[has(self.secret), has(self.configMap), has(self.audience)].filter(given, given).size() == 1',
        message: oneSource,
      },
    ],
  })

const isGiven = (one: unknown): boolean => one !== undefined

export const configured = z
  .array(value)
  .min(1)
  .max(32)
  .refine((all) => new Set(all.map((one) => one.name)).size === all.length, 'two values have the same name')
  .meta({ 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'] })

/** A value that the calls of an external system receive. */
export type ConfigValue = z.output<typeof value>

/** Whether the value is a secret: no text that leaves the function may contain it. */
export const isSecretValue = ({ configMap }: ConfigValue): boolean => configMap === undefined

/** Where the pod of a function over HTTP has the values: a file for each, with its name. */
export const CONFIG_FOLDER = '/var/run/fairlead/config'

/** How long a token for an audience is valid, in seconds: it is renewed before. */
export const TOKEN_SECONDS = 3600

/** The pause after which an object whose function lacks a value is tried again. */
const MISSING_RETRY_S = 60

/** Returns the error of a call that lacks a value, which its object shows. `value`: what the function calls it. */
export const missingConfig = (value: string, why: string, cause?: unknown): RetryAfterError =>
  new RetryAfterError(`config "${value}": ${why}`, {
    reason: 'ConfigMissing',
    afterSeconds: MISSING_RETRY_S,
    ...(cause !== undefined && { cause }),
  })
