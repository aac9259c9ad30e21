import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Option, type Command } from 'commander';
import {
  LoadBalancerConfigSchema,
  LoadBalancerConfig_AlgorithmSchema,
  Port_Protocol,
  ServicePortSchema,
  ServiceSpecSchema,
  ServiceSpec_SessionAffinity,
  ServiceSpec_TypeSchema,
  type LoadBalancerConfig,
  type ServicePort,
  type ServiceSpec,
} from '@cloudless/api';
import { createUsageFailure } from '../call/failure.js';
import type { LocalInvocation } from '../command-tree.js';
import { getListOption, getTextOption } from '../commands/options.js';
import { withValues } from '../completion/value-kinds.js';
import { parseDurationOption } from '../config/settings.js';
import { describeExpectedEnum, findEnumName } from './enum-words.js';
import {
  collectValue,
  parsePortNumber,
  listEnumNames,
  listEnumWords,
  parsePairs,
  parseWholeNumber,
} from './flag-values.js';

/** Fields of a service that flags set, with their paths for an update. */
export interface ServicePatch {
  readonly spec: ServiceSpec;
  /** Paths below `spec` in the update mask. */
  readonly specPaths: readonly string[];
  readonly loadBalancer: LoadBalancerConfig;
  /** Paths below the load balancer configuration in the update mask. */
  readonly loadBalancerPaths: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
}

/** Adds the flags that set fields of a service. */
export function addServiceFlags(command: Command): Command {
  return command
    .option(
      '--port <service-port>',
      'port [name=]port[:target][/udp]; target is a declared port or its name (repeatable)',
      collectValue,
    )
    .option('--workload <workload>', 'workload of the namespace whose replicas are the endpoints')
    .option(
      '--to-labels <key=value>',
      'label of the workloads whose replicas are the endpoints (repeatable)',
      collectValue,
    )
    .addOption(
      withValues(
        new Option('--type <type>', 'where the service is reached from'),
        listEnumWords(ServiceSpec_TypeSchema),
      ),
    )
    .option('--headless', 'no virtual address: the name gives the addresses of the endpoints')
    .option('--external-name <text>', 'the name gives this DNS name outside the cluster')
    .option(
      '--external-ip <address>',
      'address of LoadBalancer services (repeatable)',
      collectValue,
    )
    .option('--session-affinity <duration>', 'time for which a client keeps its endpoint; 0: none')
    .option('--proxy-protocol', 'begin connections to endpoints with a PROXY protocol v2 header')
    .option('--no-proxy-protocol', 'do not begin connections with a PROXY protocol header')
    .addOption(
      withValues(
        new Option('--algorithm <algorithm>', 'rule by which an endpoint is chosen'),
        listEnumWords(LoadBalancerConfig_AlgorithmSchema),
      ),
    )
    .option('--max-connections <number>', 'connections that one node holds at a time; 0: no limit')
    .option(
      '--label <key=value>',
      'label of the service, or key- to remove (repeatable)',
      collectValue,
    );
}

/**
 * Returns the fields that the flags of {@link addServiceFlags} set.
 * @throws {@link CliFailure} with exit code 2 for an invalid value.
 */
export function readServiceFlags(invocation: LocalInvocation): ServicePatch {
  const { options } = invocation;
  const spec = create(ServiceSpecSchema);
  const specPaths: string[] = [];
  const ports = getListOption(invocation, 'port');
  if (ports.length > 0) {
    spec.ports = ports.map(parseServicePort);
    specPaths.push('ports');
  }
  const workload = getTextOption(invocation, 'workload');
  const labels = getListOption(invocation, 'toLabels');
  if (workload !== undefined && labels.length > 0)
    throw createUsageFailure('--workload and --to-labels select the endpoints: give one of them');
  if (workload !== undefined || labels.length > 0) {
    spec.workload = workload ?? '';
    spec.selector = toRecord('--to-labels', labels);
    specPaths.push('workload', 'selector');
  }
  const type = readEnum(invocation, 'type', ServiceSpec_TypeSchema);
  if (type !== undefined) {
    spec.type = type;
    specPaths.push('type');
  }
  if (options['headless'] === true) {
    spec.headless = true;
    specPaths.push('headless');
  }
  const externalName = getTextOption(invocation, 'externalName');
  if (externalName !== undefined) {
    spec.externalName = externalName;
    specPaths.push('external_name');
  }
  const externalIps = getListOption(invocation, 'externalIp');
  if (externalIps.length > 0) {
    spec.externalIps = [...externalIps];
    specPaths.push('external_ips');
  }
  readAffinity(invocation, spec, specPaths);
  // With `--no-`, the commander library has true as the default of neither flag.
  if (typeof options['proxyProtocol'] === 'boolean') {
    spec.proxyProtocol = options['proxyProtocol'];
    specPaths.push('proxy_protocol');
  }
  return { spec, specPaths, ...readLoadBalancer(invocation), labels: readLabels(invocation) };
}

function readAffinity(invocation: LocalInvocation, spec: ServiceSpec, paths: string[]): void {
  const text = getTextOption(invocation, 'sessionAffinity');
  if (text === undefined) return;
  const timeoutMs = text === '0' ? 0 : parseDurationOption('--session-affinity', text);
  paths.push('session_affinity');
  spec.sessionAffinity =
    timeoutMs === 0 ? ServiceSpec_SessionAffinity.NONE : ServiceSpec_SessionAffinity.CLIENT_IP;
  if (timeoutMs === 0) return;
  spec.sessionAffinityTimeout = durationFromMs(timeoutMs);
  paths.push('session_affinity_timeout');
}

function readLoadBalancer(
  invocation: LocalInvocation,
): Pick<ServicePatch, 'loadBalancer' | 'loadBalancerPaths'> {
  const loadBalancer = create(LoadBalancerConfigSchema);
  const loadBalancerPaths: string[] = [];
  const algorithm = readEnum(invocation, 'algorithm', LoadBalancerConfig_AlgorithmSchema);
  if (algorithm !== undefined) {
    loadBalancer.algorithm = algorithm;
    loadBalancerPaths.push('algorithm');
  }
  const maxConnections = getTextOption(invocation, 'maxConnections');
  if (maxConnections !== undefined) {
    loadBalancer.maxConnections = parseWholeNumber('--max-connections', maxConnections);
    loadBalancerPaths.push('max_connections');
  }
  return { loadBalancer, loadBalancerPaths };
}

/** An empty value removes a label. */
function readLabels(invocation: LocalInvocation): Readonly<Record<string, string>> {
  const pairs = parsePairs('--label', getListOption(invocation, 'label'));
  return Object.fromEntries(pairs.map(({ key, value = '' }) => [key, value]));
}

function toRecord(flag: string, texts: readonly string[]): Record<string, string> {
  const pairs = parsePairs(flag, texts);
  const removed = pairs.find(({ value }) => value === undefined);
  if (removed !== undefined)
    throw createUsageFailure(`${flag}: expected key=value, got "${removed.key}-"`);
  return Object.fromEntries(pairs.map(({ key, value = '' }) => [key, value]));
}

function readEnum<Value extends number>(
  invocation: LocalInvocation,
  name: string,
  schema: { readonly values: readonly { readonly name: string; readonly number: number }[] },
): Value | undefined {
  const text = getTextOption(invocation, name);
  if (text === undefined) return undefined;
  const names = listEnumNames(schema);
  const found = findEnumName(text, names);
  const value = schema.values.find((each) => each.name === found);
  if (value === undefined)
    throw createUsageFailure(`--${name}: ${describeExpectedEnum(text, names)}`);
  return value.number as Value;
}

/**
 * Parses `[name=]port[:target][/tcp|/udp]`.
 * @throws {@link CliFailure} with exit code 2 for other text.
 * @example
 * parseServicePort('http=80:8080') // port 80 named http, to the declared port 8080
 */
export function parseServicePort(text: string): ServicePort {
  const match = /^(?:([a-z0-9-]+)=)?(\d+)(?::([a-z0-9-]+))?(?:\/(tcp|udp))?$/i.exec(text);
  if (match === null) {
    throw createUsageFailure(
      `--port: expected [name=]port[:target][/udp], such as 80 or http=80:8080, got ${JSON.stringify(text)}`,
    );
  }
  const port = parsePortNumber('--port', match[2]);
  const [, name = '', , targetPort = '', protocol = 'tcp'] = match;
  return create(ServicePortSchema, {
    name,
    port,
    targetPort,
    protocol: protocol.toLowerCase() === 'udp' ? Port_Protocol.UDP : Port_Protocol.TCP,
  });
}
