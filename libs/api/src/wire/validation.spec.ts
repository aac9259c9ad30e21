import {
  create,
  getOption,
  hasOption,
  type DescMessage,
  type MessageInitShape,
} from '@bufbuild/protobuf';
import {
  field as fieldRules,
  type FieldRules,
} from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js';
import { Code, ConnectError, createClient, createRouterTransport } from '@connectrpc/connect';
import fc from 'fast-check';
import {
  AgentMessageSchema,
  AgentService,
  CoordinatorService,
  CreateSecretRequestSchema,
  CreateWorkloadRequestSchema,
  ExecCommandRequestSchema,
  IdentityService,
  NetworkService,
  PolicyService,
  UserService,
  CreateUserRequestSchema,
  EnrollNodeRequestSchema,
  GetContainerStatusRequestSchema,
  LabelRequirement_Operator as Operator,
  ListWorkloadsRequestSchema,
  ScaleWorkloadRequestSchema,
  StreamLogsRequestSchema,
  Toleration_Operator as TolerationOperator,
  UpdateNodeRequestSchema,
  UpdateWorkloadRequestSchema,
  WorkloadSpecSchema,
  createErrorInterceptor,
  createValidationInterceptor,
  validateMessage,
} from '../index.js';
import { arbitraryMessage } from '../testing/arbitrary-message.js';
import { PATTERN_TEXTS } from './violation-text.js';

type SpecInit = MessageInitShape<typeof WorkloadSpecSchema>;
const DNS_LABEL =
  'must be a DNS label: lower-case letters, digits and "-", beginning and ending with a letter or digit';
const REQUIREMENT =
  'IN and NOT_IN need at least one value, EXISTS and DOES_NOT_EXIST none, GT and LT exactly one whole number';

/** Returns the violations of a message, as texts. */
function problemsOf<Desc extends DescMessage>(
  schema: Desc,
  init: MessageInitShape<Desc>,
): string[] {
  try {
    validateMessage(schema, create(schema, init));
    return [];
  } catch (reason) {
    expect(reason).toMatchObject({ name: 'InvalidInputError' });
    return (reason as Error).message.split('; ');
  }
}
/** A number that is not a value of an enum. The binary format permits any number. */
const asEnum = (number: number): never => number as never;
/** Returns the violations of a request with this spec. */
const problemsOfSpec = (spec: SpecInit): string[] =>
  problemsOf(CreateWorkloadRequestSchema, { name: 'web', spec });
/** A spec with one requirement on node labels. */
const requirement = (init: object): SpecInit => ({
  placement: { affinity: { nodes: [{ match: [init] }] } },
});

describe('validateMessage for requests', () => {
  it.each<{ name: string; problems: string[]; expected: string[] }>([
    {
      name: 'an empty name',
      problems: problemsOf(CreateWorkloadRequestSchema, { spec: {} }),
      expected: ['name: must not be empty'],
    },
    {
      name: 'a name of 300 characters',
      problems: problemsOf(CreateWorkloadRequestSchema, { name: 'a'.repeat(300), spec: {} }),
      expected: ['name: must be at most 63 characters long'],
    },
    {
      name: 'a name of 63 characters',
      problems: problemsOf(CreateWorkloadRequestSchema, { name: 'a'.repeat(63), spec: {} }),
      expected: [],
    },
    {
      name: 'a malformed name and namespace',
      problems: problemsOf(CreateWorkloadRequestSchema, {
        namespace: '-x',
        name: 'My_App',
        spec: {},
      }),
      expected: [`namespace: ${DNS_LABEL}`, `name: ${DNS_LABEL}`],
    },
    {
      name: 'a name with a line break at its end',
      problems: problemsOf(CreateWorkloadRequestSchema, { name: 'web\n', spec: {} }),
      expected: [`name: ${DNS_LABEL}`],
    },
    {
      name: 'a name of a user with a space',
      problems: problemsOf(CreateUserRequestSchema, { name: 'Bad Name' }),
      expected: [
        'name: must be lower-case letters, digits, ".", "_" and "-", beginning and ending with a letter or digit',
      ],
    },
    {
      name: 'a missing spec',
      problems: problemsOf(CreateWorkloadRequestSchema, { name: 'web' }),
      expected: ['spec: is required'],
    },
    {
      name: 'a missing spec of an update',
      problems: problemsOf(UpdateWorkloadRequestSchema, { name: 'web' }),
      expected: ['spec: is required'],
    },
    {
      name: 'a missing replica count',
      problems: problemsOf(ScaleWorkloadRequestSchema, { name: 'web' }),
      expected: ['replicas: is required'],
    },
    {
      name: 'a replica count below 0',
      problems: problemsOf(ScaleWorkloadRequestSchema, { name: 'web', replicas: -1 }),
      expected: ['replicas: must be from 0 to 1000000'],
    },
    {
      name: 'a replica count of 0',
      problems: problemsOf(ScaleWorkloadRequestSchema, { name: 'web', replicas: 0 }),
      expected: [],
    },
    {
      name: 'a page size above the limit',
      problems: problemsOf(ListWorkloadsRequestSchema, { pageSize: 1_001 }),
      expected: ['page_size: must be from 0 to 1000'],
    },
    {
      name: 'a malformed container id',
      problems: problemsOf(StreamLogsRequestSchema, { containerId: 'XYZ' }),
      expected: ['container_id: must be 12 to 64 lower-case hex digits'],
    },
    {
      name: 'a missing container id',
      problems: problemsOf(GetContainerStatusRequestSchema, {}),
      expected: ['container_id: must not be empty'],
    },
    {
      name: 'undefined output streams and a negative number of lines',
      problems: problemsOf(StreamLogsRequestSchema, {
        streams: [asEnum(7)],
        tailLines: -1,
        afterSequence: -1n,
      }),
      expected: [
        'tail_lines: must be 0 or more',
        'streams[0]: must be one of STDOUT, STDERR',
        'after_sequence: must be 0 or more',
      ],
    },
    {
      name: 'a missing command and a timeout of 0',
      problems: problemsOf(ExecCommandRequestSchema, { timeout: {} }),
      expected: ['command: must not be empty', 'timeout: must be more than 0s and at most 3600s'],
    },
    {
      name: 'a missing node id and a short instance id',
      problems: problemsOf(EnrollNodeRequestSchema, { instanceId: 'short' }),
      expected: ['node_id: must not be empty', 'instance_id: must be at least 16 characters long'],
    },
    {
      name: 'malformed keys of a secret beside the key of a Docker configuration',
      problems: problemsOf(CreateSecretRequestSchema, {
        ...{ name: 'a', audiences: ['workload/*'] },
        data: { '.dockerconfigjson': new Uint8Array(), '..data': new Uint8Array() },
      }),
      expected: [
        'data["..data"]: the key must be letters, digits, ".", "_" and "-", beginning with a letter, a digit or one ".", and ending with a letter or digit',
      ],
    },
    {
      name: 'a malformed node label',
      problems: problemsOf(UpdateNodeRequestSchema, { nodeId: 'n', setLabels: { 'a b': 'x' } }),
      expected: [
        'set_labels["a b"]: the key must be letters, digits, ".", "_", "/" and "-", beginning and ending with a letter or digit',
      ],
    },
  ])('reports $expected for $name', ({ problems, expected }) => {
    expect(problems).toEqual(expected);
  });
});

it('validateMessage reports 50 violations and the total number for a thousand invalid ports', () => {
  const problems = problemsOfSpec({ ports: Array.from({ length: 1_000 }, () => ({})) });
  expect(problems).toHaveLength(51);
  expect(problems.at(-1)).toMatch(/^and more, \d{4} violations in total$/);
});

describe('validateMessage for specs of workloads', () => {
  it.each<{ name: string; spec: SpecInit; expected: string[] }>([
    {
      name: 'replicas below 0',
      spec: { replicas: -1 },
      expected: ['spec.replicas: must be from 0 to 1000000'],
    },
    {
      name: 'a priority above the limit',
      spec: { priority: 1_001 },
      expected: ['spec.priority: must be from 0 to 1000'],
    },
    {
      name: 'an undefined enum value',
      spec: { mode: asEnum(7), restart: { policy: asEnum(9) } },
      expected: [
        'spec.restart.policy: must be one of ALWAYS, ON_FAILURE, NEVER',
        'spec.mode: must be one of REPLICATED, GLOBAL',
      ],
    },
    {
      name: 'an invalid port',
      spec: {
        ports: [
          { containerPort: 80 },
          { containerPort: 0, name: 'UP', hostPort: -1, protocol: asEnum(9) },
        ],
      },
      expected: [
        `spec.ports[1].name: ${DNS_LABEL}`,
        'spec.ports[1].container_port: must be from 1 to 65535',
        'spec.ports[1].protocol: must be one of TCP, UDP',
        'spec.ports[1].host_port: must be from 0 to 65535',
      ],
    },
    {
      name: 'malformed names of environment variables',
      spec: { env: { '': 'a', 'A=B': 'c', OK: '=' } },
      expected: [
        'spec.env[""]: the key must not be empty',
        'spec.env["A=B"]: the key must be a name without "="',
      ],
    },
    {
      name: 'an environment variable above the size limit',
      spec: { env: { A: 'x'.repeat(131_073) } },
      expected: ['spec.env["A"]: must be at most 131072 bytes long'],
    },
    {
      name: 'malformed labels',
      spec: { labels: { '-a': 'x', b: 'no good' } },
      expected: [
        'spec.labels["-a"]: the key must be letters, digits, ".", "_", "/" and "-", beginning and ending with a letter or digit',
        'spec.labels["b"]: must be empty, or letters, digits, ".", "_" and "-", beginning and ending with a letter or digit',
      ],
    },
    {
      name: 'too many arguments',
      spec: { command: Array.from({ length: 257 }, () => 'a') },
      expected: ['spec.command: must have at most 256 items'],
    },
    {
      name: 'too many labels',
      spec: {
        labels: Object.fromEntries(Array.from({ length: 129 }, (_, index) => [`a${index}`, ''])),
      },
      expected: ['spec.labels: must have at most 128 entries'],
    },
    {
      name: 'a relative working directory',
      spec: { workingDir: 'srv' },
      expected: ['spec.working_dir: must be an absolute path'],
    },
    {
      name: 'an unknown runtime',
      spec: { runtime: 'docker' },
      expected: ['spec.runtime: must be process, cri or empty'],
    },
    {
      name: 'durations below 0',
      spec: {
        terminationGracePeriod: { seconds: -1n },
        rollout: { progressDeadline: { nanos: -1 }, minReadyDuration: { seconds: -5n } },
      },
      expected: [
        'spec.termination_grace_period: must be from 0s to 86400s',
        'spec.rollout.min_ready_duration: must be from 0s to 86400s',
        'spec.rollout.progress_deadline: must be from 0.100s to 2592000s',
      ],
    },
    {
      name: 'a duration above the limit',
      spec: { preStopDelay: { seconds: 3_600n, nanos: 1 } },
      expected: ['spec.pre_stop_delay: must be from 0s to 3600s'],
    },
    {
      name: 'duplicate and empty regions',
      spec: { placement: { regions: ['a', 'a'], zones: [''] } },
      expected: [
        'spec.placement.regions: must not contain duplicates',
        'spec.placement.zones[0]: must not be empty',
      ],
    },
    {
      name: 'a term without requirements',
      spec: { placement: { antiAffinity: { workloads: [{ weight: 101 }] } } },
      expected: [
        'spec.placement.anti_affinity.workloads[0].match: must not be empty',
        'spec.placement.anti_affinity.workloads[0].weight: must be from 0 to 100',
      ],
    },
    {
      name: 'IN without values',
      spec: requirement({ key: 'a', operator: Operator.IN }),
      expected: [`spec.placement.affinity.nodes[0].match[0]: ${REQUIREMENT}`],
    },
    {
      name: 'NOT_IN without values',
      spec: requirement({ key: 'a', operator: Operator.NOT_IN }),
      expected: [`spec.placement.affinity.nodes[0].match[0]: ${REQUIREMENT}`],
    },
    {
      name: 'EXISTS with a value',
      spec: requirement({ key: 'a', operator: Operator.EXISTS, values: ['x'] }),
      expected: [`spec.placement.affinity.nodes[0].match[0]: ${REQUIREMENT}`],
    },
    {
      name: 'DOES_NOT_EXIST with a value',
      spec: requirement({ key: 'a', operator: Operator.DOES_NOT_EXIST, values: [''] }),
      expected: [`spec.placement.affinity.nodes[0].match[0]: ${REQUIREMENT}`],
    },
    {
      name: 'GT with a word',
      spec: requirement({ key: 'a', operator: Operator.GT, values: ['many'] }),
      expected: [`spec.placement.affinity.nodes[0].match[0]: ${REQUIREMENT}`],
    },
    {
      name: 'LT with two numbers',
      spec: requirement({ key: 'a', operator: Operator.LT, values: ['1', '2'] }),
      expected: [`spec.placement.affinity.nodes[0].match[0]: ${REQUIREMENT}`],
    },
    {
      name: 'an undefined operator',
      spec: requirement({ key: 'a', operator: asEnum(6) }),
      expected: [
        'spec.placement.affinity.nodes[0].match[0].operator: must be one of IN, NOT_IN, EXISTS, DOES_NOT_EXIST, GT, LT',
      ],
    },
    {
      name: 'a requirement without a key',
      spec: requirement({ operator: Operator.EXISTS }),
      expected: ['spec.placement.affinity.nodes[0].match[0].key: must not be empty'],
    },
    {
      name: 'EQUAL without a key',
      spec: { placement: { tolerations: [{ value: 'x' }] } },
      expected: ['spec.placement.tolerations[0]: EQUAL needs a key'],
    },
    {
      name: 'EXISTS with a value to compare',
      spec: {
        placement: { tolerations: [{ key: 'a', operator: TolerationOperator.EXISTS, value: 'x' }] },
      },
      expected: ['spec.placement.tolerations[0]: EXISTS takes no value'],
    },
    {
      name: 'an undefined effect',
      spec: { placement: { tolerations: [{ key: 'a', effect: asEnum(9) }] } },
      expected: [
        'spec.placement.tolerations[0].effect: must be one of NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE',
      ],
    },
    {
      name: 'a spread without a topology',
      spec: { placement: { spread: {} } },
      expected: ['spec.placement.spread.topology: must not be empty'],
    },
    {
      name: 'a time that JSON cannot express',
      spec: { restartedAt: { seconds: 10n ** 15n } },
      expected: ['spec.restarted_at: must be a time of the years 1 to 9999'],
    },
    {
      name: 'a duration with different signs of seconds and nanos',
      spec: { rollout: { steps: [{}, { wait: { seconds: 1n, nanos: -1 } }] } },
      expected: [
        'spec.rollout.steps[1].wait: must be a duration within 10000 years, with seconds and nanos of one sign',
      ],
    },
    {
      name: 'a duration that the rules cannot compare',
      spec: { rollout: { progressDeadline: { seconds: 2n ** 62n } } },
      expected: [
        'spec.rollout.progress_deadline: must be a duration within 10000 years, with seconds and nanos of one sign',
      ],
    },
  ])('reports the violations of $name', ({ spec, expected }) => {
    expect(problemsOfSpec(spec)).toEqual(expected);
  });

  it.each([
    { name: 'of a replica', value: { startedAt: { seconds: 10n ** 15n } }, path: 'started_at' },
    {
      name: 'of a container',
      value: { startedAt: { seconds: 1n }, container: { startedAt: { nanos: -1 } } },
      path: 'container.started_at',
    },
  ])('reports a time $name that JSON cannot express in a report', ({ value, path }) => {
    const message = create(AgentMessageSchema, { message: { case: 'report', value } });
    expect(() => validateMessage(AgentMessageSchema, message)).toThrow(
      `report.${path}: must be a time of the years 1 to 9999`,
    );
  });

  it.each<{ name: string; spec: SpecInit }>([
    { name: 'an empty spec, which checkSpec rejects', spec: {} },
    {
      name: 'valid IN, EXISTS and GT requirements',
      spec: {
        placement: {
          affinity: {
            nodes: [
              {
                match: [
                  { key: 'a', operator: Operator.IN, values: ['x', 'y'] },
                  { key: 'b', operator: Operator.EXISTS },
                  { key: 'c', operator: Operator.GT, values: ['-12'] },
                ],
              },
            ],
          },
        },
      },
    },
    {
      name: 'a toleration of everything',
      spec: { placement: { tolerations: [{ operator: TolerationOperator.EXISTS }] } },
    },
    { name: 'EQUAL to an empty value', spec: { placement: { tolerations: [{ key: 'a' }] } } },
    {
      name: 'the longest durations',
      spec: {
        terminationGracePeriod: { seconds: 86_400n },
        preStopDelay: { seconds: 3_600n },
        restartedAt: { seconds: 253_402_300_799n, nanos: 999_999_999 },
      },
    },
    {
      name: 'labels with all allowed characters',
      spec: { labels: { 'a.b/c_d-e': 'A.b_c-9', x: '' } },
    },
  ])('accepts $name', ({ spec }) => {
    expect(problemsOfSpec(spec)).toEqual([]);
  });

  it('evaluates its rules without an internal error on any spec', () => {
    fc.assert(
      fc.property(arbitraryMessage(WorkloadSpecSchema), (spec) =>
        expect(problemsOfSpec(spec)).not.toContain('a validation rule failed to run'),
      ),
    );
  });
});

describe('validation rules of the proto files', () => {
  const messages = new Set<DescMessage>(
    [
      ...[CoordinatorService, AgentService, IdentityService, NetworkService],
      ...[PolicyService, UserService],
    ].flatMap(({ methods }) => methods.map(({ input }) => input)),
  );
  for (const { fields } of messages)
    for (const { message } of fields) if (message !== undefined) messages.add(message);
  const rules = [...messages].flatMap(({ fields }) =>
    fields.flatMap((field) =>
      hasOption(field, fieldRules) ? withInner(getOption(field, fieldRules)) : [],
    ),
  );

  it('contain exactly the patterns that have a description in PATTERN_TEXTS', () => {
    const patterns = rules.flatMap(({ type }) =>
      type.case === 'string' && type.value.pattern !== '' ? [type.value.pattern] : [],
    );
    expect([...new Set(patterns)].sort()).toEqual(Object.keys(PATTERN_TEXTS).sort());
  });

  it('restrict every enum of a request to its defined values', () => {
    const unrestricted = [...messages].flatMap(({ typeName, fields }) =>
      fields
        .filter(
          (field) =>
            field.enum !== undefined &&
            isUserInput(typeName) &&
            // The proto of another project has no rules; the handlers check the value.
            !typeName.startsWith('google.protobuf.') &&
            !JSON.stringify(rulesText(field)).includes('enum'),
        )
        .map(({ name }) => `${typeName}.${name}`),
    );
    expect(unrestricted).toEqual([]);
  });
});

/**
 * Returns false for messages of agents, whose enums are not restricted: an older coordinator must
 * accept a report of a newer agent with values that it does not know.
 */
function isUserInput(typeName: string): boolean {
  return !/\.(ReplicaReport|Condition|LogEntry|ContainerStatus|ContainerStats|ImagePullStatus|TunnelError)$/.test(
    typeName,
  );
}

function rulesText(field: DescMessage['fields'][number]): unknown {
  return hasOption(field, fieldRules)
    ? withInner(getOption(field, fieldRules)).map(({ type }) => type.case)
    : [];
}

function withInner(rules: FieldRules): FieldRules[] {
  const { type } = rules;
  const inner =
    type.case === 'repeated'
      ? [type.value.items]
      : type.case === 'map'
        ? [type.value.keys, type.value.values]
        : [];
  return [rules, ...inner.flatMap((nested) => (nested === undefined ? [] : withInner(nested)))];
}

describe('createValidationInterceptor', () => {
  it('rejects an invalid request or stream message before the handler receives it', async () => {
    /** Names and message kinds that the handlers received. */
    const received: string[] = [];
    const transport = createRouterTransport(
      ({ service }) => {
        service(CoordinatorService, {
          createWorkload: ({ name }) => (received.push(name), { name }),
          session: async function* (messages) {
            for await (const { message } of messages) {
              received.push(message.case ?? '');
              yield { message: { case: 'welcome', value: { protocol: 1 } } };
            }
          },
          watchWorkloads: async function* ({ name }) {
            received.push(name);
            yield {};
          },
        });
      },
      {
        router: {
          interceptors: [
            createErrorInterceptor(() => undefined),
            createValidationInterceptor([CoordinatorService, AgentService]),
          ],
        },
      },
    );
    const client = createClient(CoordinatorService, transport);
    expect(await client.createWorkload({ name: 'web', spec: {} })).toMatchObject({ name: 'web' });
    await expect(client.createWorkload({ name: '', spec: {} })).rejects.toMatchObject({
      code: Code.InvalidArgument,
      rawMessage: 'name: must not be empty',
    });

    const bad = client.watchWorkloads({ name: 'x'.repeat(64) })[Symbol.asyncIterator]();
    await expect(bad.next()).rejects.toMatchObject({
      code: Code.InvalidArgument,
      rawMessage: 'name: must be at most 63 characters long',
    });

    const goodbye = create(AgentMessageSchema, { message: { case: 'goodbye', value: {} } });
    const namelessHello = create(AgentMessageSchema, { message: { case: 'hello', value: {} } });
    const answers: number[] = [];
    const session = async (): Promise<void> => {
      for await (const { message } of client.session(streamOf(goodbye, namelessHello, goodbye)))
        answers.push(message.case === 'welcome' ? 1 : 0);
    };
    const failure = await session().catch((reason: unknown) => reason);
    expect(failure).toBeInstanceOf(ConnectError);
    expect(failure).toMatchObject({
      code: Code.InvalidArgument,
      rawMessage: 'hello.node_id: must not be empty',
    });
    expect({ received, answers }).toEqual({ received: ['web', 'goodbye'], answers: [1] });
  });
});

async function* streamOf<Item>(...items: Item[]): AsyncGenerator<Item> {
  yield* items;
}
