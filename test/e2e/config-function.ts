import { z } from 'zod'
import { reconciler, resource } from '#sdk'

const Record = (kind: string) =>
  resource({
    group: 'test.fairlead.dev',
    version: 'v1',
    kind,
    plural: `${kind.toLowerCase()}s`,
    spec: z.object({ act: z.enum(['use', 'throw', 'log', 'return']) }),
    status: z.object({ answer: z.string().optional() }),
  })
export const Keyed = Record('Keyed')
export const Keyless = Record('Keyless')

const ready = (answer: string) => ({
  status: { answer },
  conditions: [{ type: 'Ready', status: 'True' as const, reason: 'Answered' }],
})

/** A function with a token of a provider and an identity of its own. */
export const keyed = reconciler({
  name: 'keyed',
  for: Keyed,
  backoff: { initialSeconds: 3600, maxSeconds: 3600 },
  external: {
    config: [
      { name: 'token', secret: { name: 'provider', key: 'token' } },
      { name: 'url', configMap: { name: 'provider', key: 'url' } },
      { name: 'cloud', audience: 'cloud.test' },
    ],
    async read({ object, config, signal, log }): Promise<string> {
      const headers = { authorization: `Bearer ${config('token')}`, 'x-identity': config('cloud') }
      switch (object.spec.act) {
        case 'throw':
          throw new Error(`${config('token')} was refused, and ${config('cloud')}`, {
            cause: new Error(config('token')),
          })
        case 'log':
          log.warn({ headers, err: new Error(config('token')) }, `uses ${config('token')}`)
          break
        case 'return':
          return config('token')
        case 'use':
      }
      const response = await fetch(`${config('url')}/${object.metadata.name}`, { headers, signal })
      return response.text()
    },
    perform: () => undefined,
  },
  reconcile: ({ external }) => ready(external),
})

/** A function of the same process, which asks for what is not its own. */
export const keyless = reconciler({
  name: 'keyless',
  for: Keyless,
  external: { read: ({ config }) => config('token'), perform: () => undefined },
  reconcile: ({ external }) => ready(external),
})
