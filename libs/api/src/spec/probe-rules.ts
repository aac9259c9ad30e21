import type { Violation } from '@cloudless/base';
import {
  Port_Protocol,
  type Port,
  type Probe,
  type Probe_HttpCheck,
  type WorkloadSpec,
} from '../gen.js';
import { resolvePortName } from './defaults.js';

/** Headers that control the transfer of a request. Only the agent may set them. */
const RESERVED_HEADERS = [
  'connection',
  'content-length',
  'expect',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/**
 * Finds the declared TCP port that a probe refers to: first by name, then by container port.
 * @param text - Name or number in the probe.
 * @returns Undefined when no such TCP port is declared.
 */
export function findProbePort(ports: readonly Port[], text: string): Port | undefined {
  const tcp = ports.filter(({ protocol }) => protocol === Port_Protocol.TCP);
  return (
    tcp.find((port) => resolvePortName(port) === text) ??
    tcp.find(({ containerPort }) => String(containerPort) === text)
  );
}

/**
 * Validates the probes of a spec beyond the rules of the proto. The paths of the violations start
 * with `spec`.
 */
export function* validateProbes(spec: WorkloadSpec): Generator<Violation> {
  const { livenessProbe, readinessProbe, startupProbe, ports } = spec;
  if (livenessProbe !== undefined)
    yield* validateProbe('spec.liveness_probe', livenessProbe, ports);
  if (readinessProbe !== undefined)
    yield* validateProbe('spec.readiness_probe', readinessProbe, ports);
  if (startupProbe !== undefined) yield* validateProbe('spec.startup_probe', startupProbe, ports);
  yield* validateSuccessThreshold('spec.liveness_probe', livenessProbe);
  yield* validateSuccessThreshold('spec.startup_probe', startupProbe);
}

function* validateProbe(
  field: string,
  { check }: Probe,
  ports: readonly Port[],
): Generator<Violation> {
  switch (check.case) {
    case undefined:
      yield { field, message: 'one of exec, http, tcp and grpc is required' };
      return;
    case 'exec':
      yield* validateCommand(`${field}.exec.command`, check.value.command);
      return;
    case 'http':
      yield* validatePort(`${field}.http.port`, check.value.port, ports);
      yield* validateHeaders(`${field}.http.headers`, check.value);
      return;
    default:
      yield* validatePort(`${field}.${check.case}.port`, check.value.port, ports);
  }
}

function* validateCommand(field: string, command: readonly string[]): Generator<Violation> {
  if (command.length === 0) yield { field, message: 'must not be empty' };
  if (command[0] === '') yield { field: `${field}[0]`, message: 'must name an executable' };
  for (const [index, word] of command.entries()) {
    if (word.includes('\0'))
      yield { field: `${field}[${index}]`, message: 'must not contain a NUL character' };
  }
}

function* validatePort(field: string, text: string, ports: readonly Port[]): Generator<Violation> {
  if (findProbePort(ports, text) !== undefined) return;
  const declared = ports
    .filter(({ protocol }) => protocol === Port_Protocol.TCP)
    .map(resolvePortName);
  const choice =
    declared.length === 0 ? 'spec.ports declares no TCP port' : `declared: ${declared.join(', ')}`;
  const problem =
    text === ''
      ? 'must name a declared TCP port'
      : `${JSON.stringify(text)} is not a declared TCP port`;
  yield { field, message: `${problem}, by name or number (${choice})` };
}

function* validateHeaders(field: string, { headers }: Probe_HttpCheck): Generator<Violation> {
  const seen = new Set<string>();
  for (const name of Object.keys(headers)) {
    const lower = name.toLowerCase();
    const path = `${field}[${JSON.stringify(name)}]`;
    if (RESERVED_HEADERS.includes(lower))
      yield { field: path, message: 'is set by the agent itself' };
    if (seen.has(lower)) yield { field: path, message: 'is set twice in different letter case' };
    seen.add(lower);
  }
}

/** Validates a liveness or startup probe, for which one passed check is always sufficient. */
function* validateSuccessThreshold(field: string, probe: Probe | undefined): Generator<Violation> {
  if ((probe?.successThreshold ?? 0) > 1)
    yield { field: `${field}.success_threshold`, message: 'must be 1 here' };
}
