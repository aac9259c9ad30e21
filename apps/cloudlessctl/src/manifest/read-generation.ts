import { isScalar } from 'yaml';
import { describeNode, type Entry, type YamlReader } from './yaml-reader.js';

/**
 * Returns the generation that `get -o yaml` has printed: a whole number, or its text, as protobuf
 * JSON writes 64-bit numbers. Undefined without the key; reports a problem for any other value.
 */
export function readGeneration(
  reader: YamlReader,
  entries: readonly Entry[],
  prefix: string,
): bigint | undefined {
  const entry = entries.find(({ key }) => key === 'generation');
  if (entry === undefined) return undefined;
  const value = isScalar(entry.value) ? entry.value.value : undefined;
  if (typeof value === 'bigint' && value >= 0n) return value;
  if (typeof value === 'string' && /^\d{1,19}$/.test(value)) return BigInt(value);
  reader.report(
    entry.value ?? entry.keyNode,
    `${prefix}generation`,
    `expected the whole number that "-o yaml" prints, got ${describeNode(entry.value)}`,
  );
  return undefined;
}
