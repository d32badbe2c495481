import { ConfigMap, reconciler, resource, z } from 'fairlead'
import { runOperators } from 'fairlead/testing/cluster'
import { describe, expect, it } from 'vitest'

const Note = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Note',
  plural: 'notes',
  spec: z.object({ text: z.string() }),
  status: z.object({ length: z.int32() }),
})
const note = (text: string) => Note.of({ metadata: { name: 'a' }, spec: { text } })

const notes = reconciler({
  name: 'notes',
  for: Note,
  owns: [ConfigMap],
  reconcile: ({ object: { metadata, spec } }) => ({
    apply: [ConfigMap.of({ metadata: { name: metadata.name }, data: { text: spec.text } })],
    status: { length: spec.text.length },
  }),
})

describe('reconcilers on real servers of their own', () => {
  it('are served, and see what is created, changed and deleted', async () => {
    await using operators = await runOperators([notes])
    await operators.create(Note, note('hello'))
    await operators.until(ConfigMap, 'a', (found) => found?.data?.['text'] === 'hello')
    await operators.patch(Note, 'a', { spec: { text: 'hello world' } })
    await operators.until(Note, 'a', (found) => found?.status?.length === 11)
    await operators.delete(ConfigMap, 'a')
    await operators.until(ConfigMap, 'a', (found) => found?.data?.['text'] === 'hello world')
    expect((await operators.list(Note)).map(({ metadata }) => metadata.name)).toEqual(['a'])
  })
})
