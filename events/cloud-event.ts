/**
 * A CloudEvent 1.0 as plain data, as in its JSON format. `data` is a Uint8Array if the bytes are neither JSON nor text.
 * Extension attributes are members beside the other attributes.
 */
export interface CloudEvent<T = unknown> {
  id: string
  source: string
  specversion: string
  type: string
  datacontenttype?: string
  dataschema?: string
  subject?: string
  /** A timestamp as in RFC 3339. */
  time?: string
  data?: T
  /** The data as base64, if it travels as bytes in JSON. */
  data_base64?: string
  [extension: string]: unknown
}
