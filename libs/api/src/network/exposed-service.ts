import { create } from '@bufbuild/protobuf';
import type { Violation } from '@cloudless/base';
import {
  Port_Protocol as Protocol,
  ServiceSpecSchema,
  type Port,
  type ServiceSpec,
  type WorkloadSpec,
} from '../gen.js';
import { resolvePortName } from '../spec/defaults.js';

/**
 * Returns the spec of the service that `expose` of a workload asks for.
 * @param workload - Name of the workload.
 * @returns Undefined when the workload exposes nothing.
 */
export function createExposedSpec(workload: string, spec: WorkloadSpec): ServiceSpec | undefined {
  if (spec.expose.length === 0) return undefined;
  const targets = spec.expose.flatMap(({ name, port }) => {
    const declared = findExposedPort({ name, port }, spec.ports);
    return declared === undefined ? [] : [{ port, declared, target: resolvePortName(declared) }];
  });
  const isExposedTwice = (name: string): boolean =>
    targets.filter(({ target }) => target === name).length > 1;
  return create(ServiceSpecSchema, {
    workload,
    ports: targets.map(({ port, declared, target }) => ({
      name: isExposedTwice(target) ? `port-${port}` : target,
      port,
      targetPort: target,
      protocol: declared.protocol,
    })),
  });
}

/** Validates `expose`: each entry leads to a declared port, and no port is used twice. */
export function* validateExpose({ expose, ports }: WorkloadSpec): Generator<Violation> {
  const used = new Set<string>();
  for (const [index, exposed] of expose.entries()) {
    const declared = findExposedPort(exposed, ports);
    const field = `spec.expose[${index}]`;
    if (declared === undefined) {
      yield exposed.name === ''
        ? { field: `${field}.port`, message: describeMissingPort(exposed.port, ports) }
        : {
            field: `${field}.name`,
            message: `"${exposed.name}" is not a declared port; declare it in spec.ports`,
          };
      continue;
    }
    const key = `${exposed.port} ${Protocol[declared.protocol]}`;
    if (used.has(key)) yield { field: `${field}.port`, message: `${key} is used twice` };
    used.add(key);
  }
}

function describeMissingPort(port: number, declared: readonly Port[]): string {
  return declared.length === 0
    ? 'the workload declares no port to expose; declare one in spec.ports (flag --port)'
    : `no declared port has the number ${port}, and there are several; set name to one of ${declared.map(resolvePortName).join(', ')}`;
}

/**
 * Returns the declared port that `expose` names: by its name, else by its number, else the only
 * declared port. Undefined when there is no such port.
 */
function findExposedPort(
  exposed: { readonly name: string; readonly port: number },
  declared: readonly Port[],
): Port | undefined {
  if (exposed.name !== '')
    return declared.find((candidate) => resolvePortName(candidate) === exposed.name);
  return (
    declared.find(({ containerPort }) => containerPort === exposed.port) ??
    (declared.length === 1 ? declared[0] : undefined)
  );
}
