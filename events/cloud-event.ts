/**
 * A CloudEvent 1.0 as plain data, by its JSON format; bytes that are neither JSON nor text are a Uint8Array in `data`.
 * Extension attributes stand beside the others.
 */
export interface CloudEvent<T = unknown> {
  id: string
  source: string
  specversion: string
  type: string
  datacontenttype?: string
  dataschema?: string
  subject?: string
  /** RFC 3339. */
  time?: string
  data?: T
  /** Base64, of bytes as they travel in JSON. */
  data_base64?: string
  [extension: string]: unknown
}
