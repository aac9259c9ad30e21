import { CloudlessError } from '@cloudless/base';

/** A stored object whose generation a client may expect. */
export interface ExpectedObject {
  /** For the message: `workload`, `service`. */
  readonly kind: string;
  /** For the message: `default/web`. */
  readonly name: string;
  readonly generation: bigint;
}

/**
 * Checks the generation that a client expects.
 * @param expected - Undefined: any generation.
 * @throws kind `conflict` when the object has another generation.
 */
export function checkGeneration(
  { kind, name, generation }: ExpectedObject,
  expected: bigint | undefined,
): void {
  if (expected === undefined || expected === generation) return;
  throw new CloudlessError(
    'GENERATION_CONFLICT',
    `${kind} "${name}" is at generation ${generation}, not ${expected}; read the ${kind} again and repeat the change`,
    { metadata: { generation: String(generation), expected: String(expected) } },
  );
}
