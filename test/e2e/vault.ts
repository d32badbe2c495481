import { hash } from 'node:crypto'
import { z } from 'zod'
import { ConfigMap, fieldsOf, reconciler, resource, Secret, TerminalError } from '#sdk'

/** A kind with a password of its own, and a function that does with it whatever goes wrong in real ones. */
const Vault = resource({
  group: 'test.fairlead.dev',
  version: 'v1',
  kind: 'Vault',
  plural: 'vaults',
  spec: z.object({
    password: z.string(),
    act: z.enum(['keep', 'look', 'throw', 'refuse', 'mistype', 'misplace', 'undeclare', 'lend']),
  }),
  status: z.object({ seen: z.array(z.string()).optional() }),
})

/** Shows that a value was seen without showing it. */
export const digest = (value: string): string => hash('sha256', value, 'hex')

/** A value that is in no object of the run but those that the function makes. */
export const reversed = (value: string): string => value.split('').reverse().join('')

export const vault = reconciler({
  name: 'vault',
  for: Vault,
  owns: [Secret, ConfigMap],
  patches: [Secret],
  backoff: { initialSeconds: 3600, maxSeconds: 3600 },
  reconcile({ object, owned }) {
    const { act, password } = object.spec
    const metadata = { name: object.metadata.name }
    const decoded = owned(Secret).flatMap(({ data = {} }) =>
      Object.values(data).map((value) => Buffer.from(value, 'base64').toString()),
    )
    const copies = owned(ConfigMap).flatMap(({ data = {} }) => Object.values(data))
    const seen = { status: { seen: [password, ...decoded, ...copies].map(digest) } }
    switch (act) {
      case 'keep':
        return {
          apply: [
            Secret.of({ metadata, stringData: { password } }),
            ConfigMap.of({ metadata, data: { copy: password } }),
          ],
          ...seen,
        }
      case 'look':
        return seen
      case 'throw':
        throw new Error(`cannot log in with ${password}`, { cause: new Error(`${password} was refused`) })
      case 'refuse':
        throw new TerminalError(`${password} is too short`, { reason: 'WeakPassword' })
      case 'mistype':
        return { apply: [Secret.of({ metadata, stringData: { pin: Number(password) as never } })] }
      case 'misplace':
        return { apply: Secret.of({ metadata, stringData: { password } }) as never }
      case 'lend':
        return {
          patch: [
            fieldsOf(Secret, { metadata: { name: 'theirs', namespace: 'default' }, data: { key: btoa(password) } }),
          ],
          ...seen,
        }
      case 'undeclare': {
        const items = [Secret.of({ metadata, stringData: { token: reversed(password) } })]
        return { apply: [{ apiVersion: 'v1', kind: 'List', metadata, items }] }
      }
    }
  },
})
