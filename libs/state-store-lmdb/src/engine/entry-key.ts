import { MAX_KEY_BYTES } from '@cloudless/state-store';
import { ByteWriter } from './byte-writer.js';

/** Shared by all keys, because LMDB copies a key before the next one is encoded. */
const writer = new ByteWriter(MAX_KEY_BYTES);

/** Encodes the key of an entry. The returned bytes are valid until the next call. */
export function encodeKey(key: string): Buffer {
  return writer.clear().rawText(key).view();
}
