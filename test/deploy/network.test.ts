import { readFileSync } from 'node:fs'
import { BlockList } from 'node:net'
import { describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'

/** The part of a NetworkPolicy that ours use. */
interface Policy {
  kind: string
  metadata: { namespace: string }
  spec: { podSelector: Selector; policyTypes: string[]; ingress?: Rule[]; egress?: Rule[] }
}
interface Rule {
  from?: Peer[]
  to?: Peer[]
  ports?: { protocol: string; port: number }[]
}
interface Peer {
  namespaceSelector?: Selector
  podSelector?: Selector
  ipBlock?: { cidr: string }
}
interface Selector {
  matchLabels?: Record<string, string>
  matchExpressions?: ({ key: string; operator: 'In'; values: string[] } | { key: string; operator: 'Exists' })[]
}
type Labels = Record<string, string>
/** A pod, or something outside of the cluster, in no namespace. */
interface End {
  namespace: string
  labels: Labels
  address?: string
}

const textOf = (file: string): string => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')
const policiesIn = (text: string, namespace: string): Policy[] =>
  parseAllDocuments(text)
    .map((document) => document.toJS() as Policy)
    .filter(({ kind }) => kind === 'NetworkPolicy')
    .map((policy) => ({ ...policy, metadata: { ...policy.metadata, namespace } }))
const read = (file: string, namespace: string): Policy[] => policiesIn(textOf(`deploy/${file}`), namespace)

const POLICIES = [
  ...read('network/policies.yaml', 'fairlead-system'),
  ...read('network/functions/policies.yaml', 'fairlead-functions'),
]
const FOR_CONSOLE = read('console/network.yaml', 'fairlead-system')
const FOR_ETCD = [
  ...read('network/etcd/policies.yaml', 'fairlead-system'),
  ...read('network/functions/etcd/policies.yaml', 'fairlead-functions'),
]

const NAMESPACE_LABELS: Record<string, Labels> = {
  'fairlead-functions': { 'fairlead.dev/functions': 'true' },
  'console-proxy': { 'fairlead.dev/console': 'true' },
  'knative-serving': { 'fairlead.dev/functions': 'true' },
}
const labelsOf = (namespace: string): Labels => ({
  'kubernetes.io/metadata.name': namespace,
  ...NAMESPACE_LABELS[namespace],
})

const selects = ({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Labels): boolean =>
  Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
  matchExpressions.every((one) =>
    one.operator === 'In' ? one.values.includes(labels[one.key] ?? '') : one.key in labels,
  )

function isIn(cidr: string, address: string | undefined): boolean {
  const [network = '', bits] = cidr.split('/')
  const block = new BlockList()
  block.addSubnet(network, Number(bits))
  return address !== undefined && block.check(address)
}

function isPeer({ namespaceSelector, podSelector = {}, ipBlock }: Peer, other: End, namespace: string): boolean {
  if (ipBlock !== undefined) return isIn(ipBlock.cidr, other.address)
  const isThere = namespaceSelector
    ? selects(namespaceSelector, labelsOf(other.namespace))
    : other.namespace === namespace
  return other.namespace !== OUTSIDE.namespace && isThere && selects(podSelector, other.labels)
}

/** As Kubernetes has it: who is selected by no policy of that direction may do everything, else what any of them allows. */
function allows(
  policies: readonly Policy[],
  direction: 'ingress' | 'egress',
  self: End,
  other: End,
  port: number,
  protocol: string,
): boolean {
  const type = direction === 'ingress' ? 'Ingress' : 'Egress'
  const selecting = policies.filter(
    ({ metadata, spec }) =>
      metadata.namespace === self.namespace &&
      spec.policyTypes.includes(type) &&
      selects(spec.podSelector, self.labels),
  )
  if (selecting.length === 0) return true
  return selecting
    .flatMap(({ spec }) => spec[direction] ?? [])
    .some((rule) => {
      const peers = direction === 'ingress' ? rule.from : rule.to
      const isPort = rule.ports?.some((one) => one.port === port && one.protocol === protocol) ?? true
      return isPort && (peers?.some((peer) => isPeer(peer, other, self.namespace)) ?? true)
    })
}

const connects = (from: End, to: End, port: number, protocol = 'TCP', policies = POLICIES): boolean =>
  allows(policies, 'egress', from, to, port, protocol) && allows(policies, 'ingress', to, from, port, protocol)

const part = (name: string): End => ({
  namespace: 'fairlead-system',
  labels: { 'app.kubernetes.io/name': name, 'app.kubernetes.io/part-of': 'fairlead' },
})
const pod = (namespace: string): End => ({ namespace, labels: {} })
const OUTSIDE = pod('')
const [NATS, BRIDGE, DISPATCHER, FUNCTION] = [
  part('nats'),
  part('bridge'),
  part('dispatcher'),
  pod('fairlead-functions'),
]

describe('the NetworkPolicies', () => {
  it.each<[string, End, End, number, string?]>([
    ['a bridge to NATS', BRIDGE, NATS, 4222],
    ['a dispatcher to NATS', DISPATCHER, NATS, 4222],
    ['NATS to NATS', NATS, NATS, 6222],
    ['a bridge to the API server', BRIDGE, OUTSIDE, 6443],
    ['a dispatcher to the API server', DISPATCHER, OUTSIDE, 443],
    ['a dispatcher to a function', DISPATCHER, FUNCTION, 8080],
    ['a dispatcher to the ingress of Knative', DISPATCHER, pod('knative-serving'), 8012],
    ['Knative to a function', pod('knative-serving'), FUNCTION, 8012],
    ['a bridge to DNS', BRIDGE, pod('kube-system'), 53, 'UDP'],
    ['NATS to DNS', NATS, pod('kube-system'), 53, 'UDP'],
    ['a function to DNS', FUNCTION, pod('kube-system'), 53, 'TCP'],
    ['Prometheus to a dispatcher', pod('monitoring'), DISPATCHER, 8080],
    ['Prometheus to NATS', pod('monitoring'), NATS, 8222],
    ['KEDA to NATS', pod('keda'), NATS, 8222],
    ['a dispatcher to a collector of traces', DISPATCHER, pod('monitoring'), 4318],
  ])('let %s', (_, from, to, port, protocol) => {
    expect(connects(from, to, port, protocol)).toBe(true)
  })

  it.each<[string, End, End, number]>([
    ['a function to NATS', FUNCTION, NATS, 4222],
    ['any other pod to NATS', pod('default'), NATS, 4222],
    ['any other pod of fairlead-system to NATS', pod('fairlead-system'), NATS, 4222],
    ['Prometheus to clients of NATS', pod('monitoring'), NATS, 4222],
    ['a bridge to the routes of NATS', BRIDGE, NATS, 6222],
    ['any other pod to the monitoring of NATS', pod('default'), NATS, 8222],
    ['any other pod to metrics', pod('default'), BRIDGE, 8080],
    ['NATS to the API server', NATS, OUTSIDE, 443],
    ['a bridge to a function', BRIDGE, FUNCTION, 8080],
    ['a dispatcher to a pod that is no function', DISPATCHER, pod('default'), 8080],
    ['any other pod to a function', pod('default'), FUNCTION, 8080],
    ['a bridge to a function, past the dispatcher', BRIDGE, FUNCTION, 443],
    ['a function to the API server', FUNCTION, OUTSIDE, 443],
    ['a function to a dispatcher', FUNCTION, DISPATCHER, 8080],
  ])('keep %s', (_, from, to, port) => {
    expect(connects(from, to, port)).toBe(false)
  })
})

describe('the optional NetworkPolicies for EtcdClusters', () => {
  const member: End = { namespace: 'shop', labels: { app: 'etcd', etcd_cluster: 'ex' } }
  const etcd: End = { namespace: 'fairlead-functions', labels: { 'serving.knative.dev/service': 'etcd' } }
  const all = [...POLICIES, ...FOR_ETCD]

  it.each<[string, End, End, number, before: boolean, after: boolean]>([
    ['a dispatcher to a member', DISPATCHER, member, 2379, false, true],
    ['the function over HTTP to a member', etcd, member, 2379, false, true],
    ['a dispatcher to the port of peers', DISPATCHER, member, 2380, false, false],
    ['a dispatcher to the same port of another pod', DISPATCHER, pod('shop'), 2379, false, false],
    [
      'a dispatcher to an etcd of no EtcdCluster',
      DISPATCHER,
      { ...member, labels: { app: 'etcd' } },
      2379,
      false,
      false,
    ],
    ['a dispatcher to an address outside of the cluster', DISPATCHER, OUTSIDE, 2379, false, false],
    ['a bridge to a member', BRIDGE, member, 2379, false, false],
    ['another function over HTTP to a member', FUNCTION, member, 2379, false, false],
  ])('let %s only where they say so', (_, from, to, port, before, after) => {
    expect([connects(from, to, port), connects(from, to, port, 'TCP', all)]).toEqual([before, after])
  })
})

describe('the optional NetworkPolicies for the console', () => {
  const console = part('console')
  const proxy = pod('console-proxy')
  const all = [...POLICIES, ...FOR_CONSOLE]

  it.each<[string, End, End, number, string?]>([
    ['a proxy to the console', proxy, console, 8090],
    ['the console to NATS', console, NATS, 4222],
    ['the console to the API server', console, OUTSIDE, 6443],
    ['the console to DNS', console, pod('kube-system'), 53, 'UDP'],
    ['Prometheus to the console', pod('monitoring'), console, 8080],
  ])('let %s', (_, from, to, port, protocol) => {
    expect(connects(from, to, port, protocol, all)).toBe(true)
  })

  it.each<[string, End, End, number]>([
    ['any other pod to the console', pod('default'), console, 8090],
    ['a function to the console', FUNCTION, console, 8090],
    ['a dispatcher to the console', DISPATCHER, console, 8090],
    ['a proxy to metrics of the console', proxy, console, 8080],
    ['a proxy to NATS', proxy, NATS, 4222],
    ['the console to a function', console, FUNCTION, 8080],
    ['the console to the monitoring of NATS', console, NATS, 8222],
    ['the console to a bridge', console, BRIDGE, 8080],
  ])('keep %s', (_, from, to, port) => {
    expect(connects(from, to, port, 'TCP', all)).toBe(false)
  })
})

describe('the NetworkPolicy of docs/deploy/nats.md for another NATS', () => {
  const [, shown = ''] = textOf('docs/deploy/nats.md').match(/```yaml\n([^`]*fairlead-company-nats[^`]*)```/) ?? []
  const all = [...POLICIES, ...policiesIn(shown, 'fairlead-system')]
  const server: End = { ...OUTSIDE, address: '10.1.2.3' }

  it.each<[string, End, End, number, before: boolean, after: boolean]>([
    ['a bridge to that NATS', BRIDGE, server, 4222, false, true],
    ['a dispatcher to that NATS', DISPATCHER, server, 4222, false, true],
    ['the console to that NATS', part('console'), server, 4222, false, true],
    ['a bridge to its routes', BRIDGE, server, 6222, false, false],
    ['a bridge to another address', BRIDGE, { ...OUTSIDE, address: '10.1.3.3' }, 4222, false, false],
    ['a function to that NATS', FUNCTION, server, 4222, false, false],
  ])('lets %s only where it says so', (_, from, to, port, before, after) => {
    expect([connects(from, to, port), connects(from, to, port, 'TCP', all)]).toEqual([before, after])
  })
})
