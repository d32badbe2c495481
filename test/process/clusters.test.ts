import { describe, expect, it } from 'vitest'
import { clustersIn, configOf } from '../../cli/process/clusters.ts'
import { readConfig } from '../../cli/process/config.ts'

const FILE = '/etc/fairlead/clusters.yaml'
const listed = (text: string) => clustersIn(text, FILE)

describe('the file of clusters', () => {
  it('lists each cluster with its kubeconfig beside the file, and its name as the prefix', () => {
    expect(
      listed('clusters: [{ name: east, kubeconfig: east.conf }, { name: old, kubeconfig: /k, prefix: "" }]'),
    ).toEqual([
      { name: 'east', kubeconfig: '/etc/fairlead/east.conf', context: undefined, prefix: 'east', labels: {} },
      { name: 'old', kubeconfig: '/k', context: undefined, prefix: '', labels: {} },
    ])
  })

  it.each([
    ['', 'the file:'],
    ['clusters:', 'clusters:'],
    ['clusters: [{ name: East, kubeconfig: k }]', 'clusters.0.name: 1 to 32 lower-case'],
    ['clusters: [{ name: east }]', 'clusters.0.kubeconfig'],
    ['clusters: [{ name: east, kubeconfig: k, server: x }]', 'clusters.0: Unrecognized key: "server"'],
    ['clusters: [{ name: a, kubeconfig: k }, { name: a, kubeconfig: l, prefix: b }]', 'two have the name "a"'],
    ['clusters: [{ name: a, kubeconfig: k }, { name: b, kubeconfig: l, prefix: a }]', 'two have the prefix "a"'],
    ['clusters: [', 'are not YAML'],
  ])('%j is refused, and the message says what is wrong', (text, message) => {
    expect(() => listed(text)).toThrow(message)
    expect(() => listed(text)).toThrow(FILE)
  })

  it('gives each cluster streams of its own, also in a shard', () => {
    const [east, old] = listed('clusters: [{ name: east, kubeconfig: e }, { name: old, kubeconfig: o, prefix: "" }]')
    const prefixes = (env: Record<string, string>) =>
      [east, old].map((one) => one && configOf(readConfig({ FAIRLEAD_CLUSTERS: FILE, ...env }), one).FAIRLEAD_PREFIX)
    expect(prefixes({})).toEqual(['east', undefined])
    expect(prefixes({ FAIRLEAD_SHARD: 'b' })).toEqual(['east-b', 'b'])
  })

  it.each([
    ['--kubeconfig', {}, { kubeconfig: 'k' }],
    ['--context', {}, { context: 'c' }],
    ['a prefix', { FAIRLEAD_PREFIX: 'p' }, {}],
  ])('excludes %s, which each entry has', (what, env, options) => {
    expect(() => readConfig({ FAIRLEAD_CLUSTERS: FILE, ...env }, options)).toThrow(`${what} is given`)
  })
})
