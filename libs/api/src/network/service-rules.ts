import { durationMs } from '@bufbuild/protobuf/wkt';
import { InvalidInputError, type Violation } from '@cloudless/base';
import {
  EndpointHealthCheck_Type as CheckType,
  Port_Protocol as Protocol,
  ServiceSpec_SessionAffinity as Affinity,
  ServiceSpec_Type as Type,
  type LoadBalancerConfig,
  type ServicePort,
  type ServiceSpec,
} from '../gen.js';
import { resolveServicePortName } from './service-defaults.js';

/**
 * Ports of a service with ports of nodes: all records of the service and of these ports fit into one
 * transaction of 100 writes, also when every port is exchanged.
 */
const MAX_NODE_PORTS = 32;
const FIRST_NODE_PORT = 30_000;
const LAST_NODE_PORT = 32_767;
/** External addresses times ports of a service, for the same reason. */
const MAX_EXTERNAL_PORTS = 32;
/** Ports of nodes and of external addresses together. */
const MAX_RECORDS = 44;
const HOUR_MS = 3_600_000;

/**
 * Validates combinations of fields of a service, which the rules of its proto cannot express.
 * @throws {@link InvalidInputError} with every violation. Paths start with `spec`.
 */
export function checkService(spec: ServiceSpec): void {
  throwViolations(
    spec.externalName === ''
      ? [
          ...validateSelection(spec),
          ...validatePorts(spec),
          ...validateReach(spec),
          ...validateAffinity(spec),
        ]
      : validateExternalName(spec),
  );
}

/**
 * Checks that an update leaves a service what it is: the virtual address, or its absence, stays for
 * the life of the service.
 * @throws {@link InvalidInputError}.
 */
export function checkSameKind(before: ServiceSpec, after: ServiceSpec): void {
  const again = 'delete the service and create it again';
  const violations: Violation[] = [];
  if (before.headless !== after.headless)
    violations.push({ field: 'spec.headless', message: `cannot change; ${again}` });
  if ((before.externalName === '') !== (after.externalName === ''))
    violations.push({
      field: 'spec.external_name',
      message: `can be replaced, but not added or removed; ${again}`,
    });
  throwViolations(violations);
}

/**
 * Validates combinations of fields of a load balancer configuration.
 * @param field - Path of the configuration in the request.
 * @throws {@link InvalidInputError} with every violation.
 */
export function checkBalancing(config: LoadBalancerConfig | undefined, field: string): void {
  throwViolations(config === undefined ? [] : [...validateBalancing(config, field)]);
}

function throwViolations(found: Iterable<Violation>): void {
  const violations = [...found];
  if (violations.length > 0) throw new InvalidInputError(violations);
}

/** A DNS name: at least two labels, of which the last is no number. */
const DNS_NAME =
  /^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)+(?!\d+\.?$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.?$/;

function* validateExternalName(spec: ServiceSpec): Generator<Violation> {
  if (!DNS_NAME.test(spec.externalName.toLowerCase())) {
    yield {
      field: 'spec.external_name',
      message: `${JSON.stringify(spec.externalName)} is not a DNS name; write one such as db.example.com`,
    };
  }
  const others: readonly (readonly [string, boolean])[] = [
    ['type', spec.type !== Type.CLUSTER_IP],
    ['ports', spec.ports.length > 0],
    ['selector', Object.keys(spec.selector).length > 0],
    ['workload', spec.workload !== ''],
    ['headless', spec.headless],
    ['session_affinity', spec.sessionAffinity !== Affinity.NONE],
    ['session_affinity_timeout', spec.sessionAffinityTimeout !== undefined],
    ['external_ips', spec.externalIps.length > 0],
    ['proxy_protocol', spec.proxyProtocol],
  ];
  for (const [name, isSet] of others) {
    if (isSet)
      yield { field: `spec.${name}`, message: 'has no effect with external_name; leave it out' };
  }
}

const DNS_LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

function* validateSelection({ selector, workload }: ServiceSpec): Generator<Violation> {
  if (workload === '') return;
  if (Object.keys(selector).length > 0)
    yield { field: 'spec.selector', message: 'cannot be combined with workload; set one of them' };
  if (!DNS_LABEL.test(workload))
    yield { field: 'spec.workload', message: `"${workload}" is not a name of a workload` };
}

function* validatePorts(spec: ServiceSpec): Generator<Violation> {
  if (spec.ports.length === 0) {
    yield { field: 'spec.ports', message: 'at least one port is required' };
    return;
  }
  if (spec.type !== Type.CLUSTER_IP && spec.ports.length > MAX_NODE_PORTS) {
    const message = `a service with ports of nodes has at most ${MAX_NODE_PORTS} ports`;
    yield { field: 'spec.ports', message };
  }
  const names = new Set<string>();
  const numbers = new Set<string>();
  const nodePorts = new Set<string>();
  for (const [index, port] of spec.ports.entries()) {
    const field = `spec.ports[${index}]`;
    const name = resolveServicePortName(port);
    const protocol = Protocol[port.protocol];
    if (names.has(name))
      yield { field: `${field}.name`, message: `"${name}" is used twice; give each port a name` };
    if (numbers.has(`${port.port}/${protocol}`))
      yield { field: `${field}.port`, message: `${port.port} ${protocol} is used twice` };
    if (port.nodePort !== 0 && nodePorts.has(`${port.nodePort}/${protocol}`))
      yield { field: `${field}.node_port`, message: `${port.nodePort} ${protocol} is used twice` };
    names.add(name);
    numbers.add(`${port.port}/${protocol}`);
    nodePorts.add(`${port.nodePort}/${protocol}`);
    yield* validatePort(spec, port, field);
  }
}

function* validatePort(
  spec: ServiceSpec,
  { targetPort, nodePort }: ServicePort,
  field: string,
): Generator<Violation> {
  const isNumber = /^\d+$/.test(targetPort);
  if (isNumber ? Number(targetPort) < 1 || Number(targetPort) > 65_535 : !isPortName(targetPort)) {
    const message = `"${targetPort}" is neither a port number from 1 to 65535 nor the name of a port`;
    yield { field: `${field}.target_port`, message };
  }
  if (nodePort === 0) return;
  if (spec.type === Type.CLUSTER_IP) {
    const message = 'only services of type NODE_PORT and LOAD_BALANCER have ports of nodes';
    yield { field: `${field}.node_port`, message };
  } else if (nodePort < FIRST_NODE_PORT) {
    yield { field: `${field}.node_port`, message: `${nodePort} is not in 30000 to 32767` };
  }
}

function isPortName(text: string): boolean {
  return text === '' || DNS_LABEL.test(text);
}

function* validateReach(spec: ServiceSpec): Generator<Violation> {
  if (spec.headless && spec.type !== Type.CLUSTER_IP) {
    const message = 'a headless service has no virtual address; use type CLUSTER_IP';
    yield { field: 'spec.type', message };
  }
  if (spec.headless && spec.proxyProtocol) {
    const message = 'connections to a headless service pass no proxy; leave it out';
    yield { field: 'spec.proxy_protocol', message };
  }
  if (spec.type !== Type.LOAD_BALANCER && spec.externalIps.length > 0) {
    const message = 'only services of type LOAD_BALANCER have external addresses';
    yield { field: 'spec.external_ips', message };
  }
  if (spec.externalIps.length > 0) yield* validateExternalPorts(spec);
  if (new Set(spec.externalIps).size < spec.externalIps.length)
    yield { field: 'spec.external_ips', message: 'must not contain duplicates' };
}

function* validateExternalPorts({ ports, externalIps }: ServiceSpec): Generator<Violation> {
  const count = ports.length * externalIps.length;
  if (count > MAX_EXTERNAL_PORTS || count + ports.length > MAX_RECORDS) {
    const message = `${externalIps.length} addresses with ${ports.length} ports are too many; use at most ${MAX_EXTERNAL_PORTS} pairs of an address and a port, and ${MAX_RECORDS} together with the ports of nodes`;
    yield { field: 'spec.external_ips', message };
  }
  for (const [index, { port }] of ports.entries()) {
    if (port < FIRST_NODE_PORT || port > LAST_NODE_PORT) continue;
    const message = `${port} is in ${FIRST_NODE_PORT} to ${LAST_NODE_PORT}, the ports of nodes, which nodes serve at external addresses too; choose another`;
    yield { field: `spec.ports[${index}].port`, message };
  }
}

function* validateAffinity(spec: ServiceSpec): Generator<Violation> {
  if (spec.sessionAffinity === Affinity.NONE) {
    if (spec.sessionAffinityTimeout === undefined) return;
    const message = 'needs session_affinity CLIENT_IP';
    yield { field: 'spec.session_affinity_timeout', message };
  } else if (spec.headless) {
    const message = 'connections to a headless service are not balanced; leave it out';
    yield { field: 'spec.session_affinity', message };
  }
}

function* validateBalancing(config: LoadBalancerConfig, field: string): Generator<Violation> {
  const { healthCheck, idleTimeout } = config;
  const idleMs = idleTimeout === undefined ? 0 : durationMs(idleTimeout);
  if (idleMs > 0 && idleMs < HOUR_MS)
    yield { field: `${field}.idle_timeout`, message: 'must be 0 or at least 1 h' };
  if (healthCheck === undefined) return;
  const { type, path, interval, timeout } = healthCheck;
  if (type !== CheckType.HTTP && path !== '')
    yield { field: `${field}.health_check.path`, message: 'only checks of type HTTP have a path' };
  if (type === CheckType.HTTP && !/^(\/[!-~]*)?$/.test(path)) {
    const message = 'must begin with "/" and be percent-encoded';
    yield { field: `${field}.health_check.path`, message };
  }
  if (interval !== undefined && timeout !== undefined && durationMs(timeout) > durationMs(interval))
    yield { field: `${field}.health_check.timeout`, message: 'must not be above the interval' };
}
