import { toJson, type DescEnum } from '@bufbuild/protobuf';
import { ValueSchema } from '@bufbuild/protobuf/wkt';
import {
  PolicyCondition_OperatorSchema as OperatorSchema,
  PolicyRule_TypeSchema as TypeSchema,
  Port_ProtocolSchema as ProtocolSchema,
  PolicySpec_ActionSchema as ActionSchema,
  VolumeTypeRule_SourceSchema as SourceSchema,
  type EgressDestination,
  type IdRange,
  type PolicyCondition,
  type PolicyRule,
  type PolicySpec,
} from '@cloudless/api';
import { InvalidInputError, toSnakeCase, type Violation } from '@cloudless/base';
import { compilePolicy, type CompileOptions, type CompiledPolicy } from '@cloudless/policy';

/** Type of the rules whose number is limited. */
const EXPRESSION = 'EXPRESSION';

/** Returns the number of rules of type EXPRESSION in a spec. */
export function countExpressions({ rules }: Pick<PolicySpec, 'rules'>): number {
  return rules.filter(({ type }) => toName(TypeSchema, type) === EXPRESSION).length;
}

/**
 * Checks a policy and prepares its evaluation.
 * @param prefix - Path of the spec in the request: `spec`.
 * @throws kind `invalid` with the path of each wrong field below `prefix`.
 */
export function compileSpec(
  name: string,
  spec: PolicySpec,
  prefix = 'spec',
  options: CompileOptions = {},
): CompiledPolicy {
  const mismatches = spec.rules.flatMap((rule, index) => findMismatch(rule, index));
  if (mismatches.length > 0) throw new InvalidInputError(withPrefix(mismatches, spec, prefix));
  try {
    return compilePolicy(toPolicyInput(name, spec), options);
  } catch (reason) {
    if (!(reason instanceof InvalidInputError)) throw reason;
    throw new InvalidInputError(withPrefix(reason.violations, spec, prefix));
  }
}

/** Converts a policy to the form that `compilePolicy` takes. */
export function toPolicyInput(name: string, spec: PolicySpec): object {
  return {
    name,
    namespace: spec.namespace,
    enabled: spec.enabled ?? true,
    priority: spec.priority,
    action: toName(ActionSchema, spec.action),
    rules: spec.rules.map((rule) => ({
      name: rule.name,
      type: toName(TypeSchema, rule.type),
      config: toConfig(rule),
      conditions: rule.conditions.map(toConditionInput),
    })),
  };
}

function toConditionInput({ field, operator, value }: PolicyCondition): object {
  return {
    field,
    operator: toName(OperatorSchema, operator),
    ...(value === undefined ? {} : { value: toJson(ValueSchema, value) }),
  };
}

/** Returns the configuration of a rule; an empty list or a false switch counts as absent. */
function toConfig({ type, config }: PolicyRule): object {
  switch (config.case) {
    case undefined:
      return {};
    case 'imageRegistry': {
      const { allowed, denied, requireDigest } = config.value;
      return listSet({ allowed, denied, requireDigest });
    }
    case 'capabilities': {
      const { allowedAdd, forbidAdd, deniedAdd, requiredDrop } = config.value;
      const lists = listSet({ allowedAdd, deniedAdd, requiredDrop });
      return forbidAdd ? { ...lists, allowedAdd: [] } : lists;
    }
    case 'egressDestination':
      return { allowed: config.value.allowed.map(toDestination) };
    case 'resourceLimit': {
      const { maxCpuMillis, maxMemoryBytes, maxPids, maxStorageBytes, maxBandwidthBps } =
        config.value;
      return listSet({ maxCpuMillis, maxMemoryBytes, maxPids, maxStorageBytes, maxBandwidthBps });
    }
    case 'nodeSelector': {
      const { required, forbidden } = config.value;
      const labels = Object.entries(required).map(([key, { values }]) => [key, values] as const);
      return {
        ...(labels.length === 0 ? {} : { required: Object.fromEntries(labels) }),
        ...listSet({ forbidden }),
      };
    }
    case 'volumeType': {
      const { allowed, hostPaths, readOnlyHostPaths } = config.value;
      return {
        allowed: allowed.map((source) => toName(SourceSchema, source)),
        ...listSet({ hostPaths, readOnlyHostPaths }),
      };
    }
    case 'securityContext': {
      const { userIds, groupIds, requireNoNewPrivileges } = config.value;
      return {
        ...(userIds === undefined ? {} : { userIds: toRange(userIds) }),
        ...(groupIds === undefined ? {} : { groupIds: toRange(groupIds) }),
        ...listSet({ requireNoNewPrivileges }),
      };
    }
    case 'expression': {
      const { expression, message } = config.value;
      return { expression, ...(message === '' ? {} : { message }) };
    }
    case 'hostNetwork':
      return listSet({ forbidHostPorts: config.value.forbidHostPorts });
    case 'seccompProfile':
    case 'apparmorProfile':
      return listSet({ allowed: config.value.allowed });
    case 'selinuxOptions': {
      const { users, roles, types, levels } = config.value;
      return listSet({ users, roles, types, levels });
    }
    case 'runtimeClass': {
      const { allowed, allowDefault } = config.value;
      return listSet({ allowed, allowDefault });
    }
    default:
      throw new TypeError(`no configuration for ${toName(TypeSchema, type)}`);
  }
}

function toDestination({ destination, ports }: EgressDestination): object {
  const list = ports.map(({ protocol, port, endPort }) => ({
    protocol: toName(ProtocolSchema, protocol),
    port,
    ...(endPort === 0 ? {} : { endPort }),
  }));
  return {
    ...(destination.case === undefined ? {} : { [destination.case]: destination.value }),
    ...(list.length === 0 ? {} : { ports: list }),
  };
}

type ConfigValue = readonly string[] | bigint | boolean | undefined;

/** Returns the fields that are set, with numbers instead of bigints. */
function listSet(fields: Readonly<Record<string, ConfigValue>>): object {
  return Object.fromEntries(
    Object.entries(fields).flatMap(([key, value]) => {
      if (value === undefined || value === false) return [];
      if (Array.isArray(value) && value.length === 0) return [];
      return [[key, typeof value === 'bigint' ? Number(value) : value]];
    }),
  );
}

function toRange({ min, max }: IdRange): object {
  return { min: Number(min), max: Number(max) };
}

/** Returns the name of an enum value; the number of a value that this version does not know. */
function toName({ value }: DescEnum, number: number): string {
  return value[number]?.name ?? String(number);
}

/** Returns the problem of a rule whose configuration is not that of its type. */
function findMismatch({ type, config }: PolicyRule, index: number): readonly Violation[] {
  const field = `rules[${index}]`;
  const name = toName(TypeSchema, type);
  const known = TypeSchema.values.slice(1).map((each) => each.name);
  if (!known.includes(name)) {
    const message = `is required; use ${known.join(', ')}`;
    return [{ field: `${field}.type`, message }];
  }
  const expected = name.toLowerCase();
  if (config.case !== undefined) {
    const given = toSnakeCase(config.case);
    if (given === expected) return findExclusion(config, field);
    const message = `is the configuration of another type of rule; the type is ${name}`;
    return [{ field: `${field}.${given}`, message }];
  }
  return [];
}

function findExclusion(config: PolicyRule['config'], field: string): readonly Violation[] {
  if (config.case !== 'capabilities') return [];
  const { allowedAdd, forbidAdd } = config.value;
  if (!forbidAdd || allowedAdd.length === 0) return [];
  const message = 'excludes allowed_add; set one of them';
  return [{ field: `${field}.capabilities.forbid_add`, message }];
}

/**
 * Converts the paths of the library to those of the request: `rules[0].config.allowed` is
 * `spec.rules[0].image_registry.allowed`. The name is outside the spec.
 */
function withPrefix(
  violations: readonly Violation[],
  { rules }: PolicySpec,
  prefix: string,
): readonly Violation[] {
  return violations.map(({ field, message }) => ({
    field:
      field === 'name'
        ? prefix.replace(/spec$/, 'name')
        : `${prefix}.${field.replace(/^rules\[(\d+)\]\.config/, (_path, index: string) => {
            const name = toName(TypeSchema, rules[Number(index)]?.type ?? 0).toLowerCase();
            return `rules[${index}].${name}`;
          })}`,
    message,
  }));
}
