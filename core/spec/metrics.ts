import { z } from 'zod'

const metricName = z
  .string()
  .max(63)
  .regex(/^[a-z][a-z0-9_]*$/, 'lower-case letters, digits and _, a letter first')

/** The label of the Reconciler, and those that Prometheus and its operator add to each series. */
const RESERVED_LABELS = ['controller', 'namespace', 'pod', 'container', 'service', 'job', 'instance', 'endpoint']
const reservedLabel = `choose another name: ${RESERVED_LABELS.join(', ')} are labels of Fairlead and of Prometheus`
const countersAreTotals = 'the name of a Counter ends with _total, and that of a Gauge does not'
const oneOfALabel = 'two labels need two names'
const oneOfAMetric = 'two metrics need two names'

/** So many series at most for each metric: 17 × 17, with `other` for values that are not declared. */
const metric = z
  .object({
    name: metricName.describe('Shown as fairlead_function_NAME. That of a Counter ends with _total.'),
    type: z
      .enum(['Counter', 'Gauge'])
      .describe('Counter: grows by what runs report. Gauge: what a run has reported last.'),
    help: z.string().min(1).max(200),
    labels: z
      .array(
        z.object({
          name: metricName
            .refine((name) => !RESERVED_LABELS.includes(name), reservedLabel)
            .meta({
              'x-kubernetes-validations': [
                {
                  rule: `!(self in [${RESERVED_LABELS.map((name) => `'${name}'`).join(', ')}])`,
                  message: reservedLabel,
                },
              ],
            }),
          values: z.array(z.string().min(1).max(63)).min(1).max(16),
        }),
      )
      .max(2)
      .refine(([one, other]) => other === undefined || one?.name !== other.name, oneOfALabel)
      .default([])
      .describe('All values that are expected. Others count as "other".')
      .meta({
        'x-kubernetes-validations': [{ rule: 'self.size() < 2 || self[0].name != self[1].name', message: oneOfALabel }],
      }),
  })
  .refine(({ name, type }) => name.endsWith('_total') === (type === 'Counter'), {
    path: ['name'],
    message: countersAreTotals,
  })
  .meta({
    'x-kubernetes-validations': [
      { rule: "self.name.endsWith('_total') == (self.type == 'Counter')", message: countersAreTotals },
    ],
  })

/** The metrics that a function declares, with all labels and values. */
export const metrics = z
  .array(metric)
  .min(1)
  .max(16)
  .refine((all) => new Set(all.map(({ name }) => name)).size === all.length, oneOfAMetric)
  .meta({
    'x-kubernetes-validations': [
      { rule: 'self.all(one, self.exists_one(other, other.name == one.name))', message: oneOfAMetric },
    ],
  })
