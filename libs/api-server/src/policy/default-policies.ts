import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  PolicyCondition_Operator as Operator,
  PolicyRule_Type as Type,
  PolicySpecSchema,
  PolicySpec_Action as Action,
  type PolicySpec,
} from '@cloudless/api';
import { PolicyGuardRecordSchema, PolicyRecordSchema } from '@cloudless/api/store';
import { randomHex, type Random } from '@cloudless/base';
import { POLICY_GUARD_KEY, type Transaction } from '@cloudless/cluster-state';
import { DANGEROUS_CAPABILITIES, DEFAULT_POLICIES, type PolicyRule } from '@cloudless/policy';

/** Random bytes of the uid of a policy. */
const UID_BYTES = 8;

/**
 * Adds the default policies to the transaction that creates a cluster. They are ordinary policies from
 * then on: admins change and delete them, and a later version of Cloudless leaves them as they are.
 * @param nowMs - Time of the creation, wall-clock milliseconds.
 */
export function putDefaultPolicies(transaction: Transaction, random: Random, nowMs: number): void {
  for (const { name, spec } of createDefaultPolicies()) {
    const record = create(PolicyRecordSchema, {
      ...{ name, spec, generation: 1n },
      uid: randomHex(random, UID_BYTES),
      createdAt: timestampFromMs(nowMs),
    });
    transaction.require('policy', name, 'absent').put('policy', name, record);
  }
  const changes = BigInt(DEFAULT_POLICIES.length);
  transaction
    .require('policyguard', POLICY_GUARD_KEY, 'absent')
    .put('policyguard', POLICY_GUARD_KEY, create(PolicyGuardRecordSchema, { changes }));
}

/** Converts the default policies of `@cloudless/policy` to messages of the API. */
export function createDefaultPolicies(): readonly {
  readonly name: string;
  readonly spec: PolicySpec;
}[] {
  return DEFAULT_POLICIES.map(({ name, namespace, enabled, priority, action, rules }) => ({
    name,
    spec: create(PolicySpecSchema, {
      ...{ namespace, enabled, priority, action: Action[action] },
      rules: rules.map((rule) => ({
        ...{ name: rule.name, type: Type[rule.type], config: toConfig(rule) },
        conditions: (rule.conditions ?? []).map(({ field, operator }) => ({
          field,
          operator: Operator[operator],
        })),
      })),
    }),
  }));
}

/** The configuration of a default rule. Only capabilities have one. */
function toConfig({ type }: PolicyRule) {
  if (type !== 'CAPABILITIES') return { case: undefined };
  return { case: 'capabilities' as const, value: { deniedAdd: [...DANGEROUS_CAPABILITIES] } };
}
