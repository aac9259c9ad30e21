/** The values of a secret by key. */
export type SecretData = ReadonlyMap<string, Uint8Array>;

const LENGTH_BYTES = 4;

/** Encodes the values of a secret, sorted by key: equal values give equal bytes. */
export function encodeValues(data: SecretData): Uint8Array {
  const parts: Uint8Array[] = [];
  const add = (bytes: Uint8Array): void => {
    const length = Buffer.alloc(LENGTH_BYTES);
    length.writeUInt32BE(bytes.length);
    parts.push(length, bytes);
  };
  for (const [key, value] of [...data].sort(([left], [right]) => (left < right ? -1 : 1))) {
    add(Buffer.from(key, 'utf8'));
    add(value);
  }
  return new Uint8Array(Buffer.concat(parts));
}

/** Decodes the result of {@link encodeValues}. The values are copies. */
export function decodeValues(bytes: Uint8Array): SecretData {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let position = 0;
  const take = (): Buffer => {
    const start = position + LENGTH_BYTES;
    position = start + buffer.readUInt32BE(position);
    return buffer.subarray(start, position);
  };
  const data = new Map<string, Uint8Array>();
  while (position < buffer.length) data.set(take().toString('utf8'), new Uint8Array(take()));
  return data;
}
