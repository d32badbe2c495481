import { z } from 'zod'

const days = (least: number, most: number) => z.int32().min(least).max(most)

/** The settings if the function is the authority of the cluster. */
export const AutoTls = z
  .object({
    certificateDays: days(1, 825)
      .default(90)
      .describe('For how long certificates are valid. They are renewed when a third of it is left.'),
    authorityDays: days(7, 3650).default(1825).describe('The age at which the authority is replaced.'),
    rotation: z
      .int32()
      .min(0)
      .default(0)
      .describe('A higher number than status.TLS.rotation replaces the authority once.'),
    overlapMinutes: z
      .int32()
      .min(1)
      .max(43_200)
      .default(1440)
      .describe(
        'Clients have to read their Secret again within that time: for so long the new authority is trusted before it issues ' +
          'certificates, and the former one after that.',
      ),
  })
  .describe(
    'Certificates are issued by this function into Secrets NAME-member-tls, NAME-operator-tls and NAME-client-tls.',
  )

export const TlsStatus = z.object({
  phase: z
    .enum(['Preparing', 'Stable', 'Trusting', 'Trusted', 'Issuing', 'Issued', 'Retiring'])
    .describe(
      'Trusting: members get to know the new authority. Trusted: clients have time for that. Issuing: members get ' +
        'certificates of it. Issued: clients have time for that. Retiring: members forget the former authority.',
    ),
  since: z.string().describe('When the phase began.'),
  authority: z.int32().describe('Number of the authority that issues certificates.'),
  trusted: z.array(z.int32()).describe('Numbers of the authorities that are trusted.'),
  begunAt: z.string().describe('When the newest authority was begun.'),
  issuedAt: z.string().describe('When the certificates were issued.'),
  rotation: z.int32().describe('The last spec.TLS.auto.rotation that was begun.'),
  certificatesUntil: z.string().optional().describe('Until when the certificates are valid.'),
  authorityUntil: z.string().optional().describe('Until when the authority is valid that issues them.'),
})
