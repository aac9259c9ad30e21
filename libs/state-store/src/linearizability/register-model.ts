import type { SequentialModel } from './check-linearizable.js';

/** A call on one of several independent registers. */
export type RegisterInput<Value> =
  | { readonly kind: 'read'; readonly register: string }
  | { readonly kind: 'write'; readonly register: string; readonly value: Value | undefined }
  | {
      readonly kind: 'compareAndSet';
      readonly register: string;
      readonly expected: Value | undefined;
      readonly value: Value | undefined;
    };

/** What a register answered. */
export type RegisterOutput<Value> =
  | { readonly kind: 'value'; readonly value: Value | undefined }
  | { readonly kind: 'written' }
  /** The register did not have the expected value. */
  | { readonly kind: 'refused' };

/** Registers that begin without a value; a written undefined removes the value. */
export function createRegisterModel<Value extends string | number | bigint>(): SequentialModel<
  Value | undefined,
  RegisterInput<Value>,
  RegisterOutput<Value>
> {
  return {
    initial: undefined,
    objectOf: ({ register }) => register,
    toKey: (value) => (value === undefined ? 'no value' : `value ${value}`),
    apply: (state, input, output) => {
      if (input.kind === 'read')
        return output?.kind === 'value' && output.value !== state ? undefined : { after: state };
      const holds = input.kind === 'write' || input.expected === state;
      if (output?.kind === 'refused') return holds ? undefined : { after: state };
      return holds ? { after: input.value } : undefined;
    },
  };
}
