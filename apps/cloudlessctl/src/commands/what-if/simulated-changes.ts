import { create, fromJson, type MessageInitShape } from '@bufbuild/protobuf';
import type { Document } from 'yaml';
import {
  SimulatedNodesSchema,
  type SimulatedChangeSchema,
  type SimulatedNodes,
} from '@cloudless/api';
import type { LocalInvocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { LocalSession } from '../../call/local-session.js';
import { parseWorkloadName } from '../../names.js';
import { readMessage } from '../../manifest/read-message.js';
import { YamlReader, formatProblem } from '../../manifest/yaml-reader.js';
import { getListOption } from '../options.js';
import { formatRouteName } from '../route/find-route.js';
import { formatServiceName } from '../service/find-service.js';
import { readFiles, readManifests } from '../workload/read-manifests.js';

/** A change of a simulation, as SimulateCluster accepts it. */
export type SimulatedChangeInit = MessageInitShape<typeof SimulatedChangeSchema>;

/** A change, and its description for people: `lose zone a`. */
export interface DescribedChange {
  readonly change: SimulatedChangeInit;
  readonly description: string;
}

/** Reads the changes that the options of `simulate` describe. */
export async function readSimulatedChanges(
  invocation: LocalInvocation,
): Promise<readonly DescribedChange[]> {
  const { session } = invocation;
  const { namespace } = session.settings;
  const list = (name: string): readonly string[] => getListOption(invocation, name);
  const named = (
    option: string,
    field: 'loseZone' | 'loseNode' | 'drainNode',
    verb: string,
  ): readonly DescribedChange[] =>
    list(option).map((value) => ({
      change: { change: { case: field, value } },
      description: `${verb} ${value}`,
    }));
  const paths = list('apply');
  const { workloads, services, routes } =
    paths.length === 0
      ? { workloads: [], services: [], routes: [] }
      : await readManifests(session, paths, 'nothing was simulated');
  for (const service of services)
    await session.printNotice(
      `${formatServiceName(service)}: not simulated, a service needs no place on a node`,
    );
  for (const route of routes)
    await session.printNotice(
      `${formatRouteName(route)}: not simulated, a route needs no place on a node`,
    );
  const added: DescribedChange[] = [];
  for (const text of list('addNodes')) added.push(await readAddedNodes(session, text));
  return [
    ...named('loseZone', 'loseZone', 'lose zone'),
    ...named('loseNode', 'loseNode', 'lose node'),
    ...named('drainNode', 'drainNode', 'drain node'),
    ...added,
    ...workloads.map(({ namespace, name, spec }) => ({
      change: {
        change: {
          case: 'apply' as const,
          value: { namespace, name, spec, updateMask: { paths: ['*'] } },
        },
      },
      description: `apply ${namespace}/${name}`,
    })),
    ...list('scale').map((text) => parseScale(text, namespace)),
    ...list('delete').map((text) => {
      const value = parseWorkloadName(text, namespace);
      return {
        change: { change: { case: 'delete' as const, value } },
        description: `delete ${value.namespace}/${value.name}`,
      };
    }),
  ];
}

/** Parses `web=50`. */
function parseScale(text: string, namespace: string): DescribedChange {
  const [, target, count] = /^([^=]+)=(\d{1,7})$/.exec(text) ?? [];
  if (target === undefined)
    throw createUsageFailure(
      `--scale ${JSON.stringify(text)}: expected WORKLOAD=REPLICAS, such as web=50`,
    );
  const name = parseWorkloadName(target, namespace);
  return {
    change: { change: { case: 'scale', value: { ...name, replicas: Number(count) } } },
    description: `scale ${name.namespace}/${name.name} to ${count}`,
  };
}

/** Parses `3=node.yaml` and `3=like:node-1`. */
async function readAddedNodes(session: LocalSession, text: string): Promise<DescribedChange> {
  const [, digits = '', source] = /^(\d{1,5})=(.+)$/.exec(text) ?? [];
  if (source === undefined)
    throw createUsageFailure(
      `--add-nodes ${JSON.stringify(text)}: expected COUNT=FILE or COUNT=like:NODE, such as 3=node.yaml`,
    );
  const like = source.startsWith('like:') ? source.slice('like:'.length) : undefined;
  const nodes =
    like === undefined
      ? await readNodeFile(session, source)
      : create(SimulatedNodesSchema, { like });
  const count = Number(digits);
  if (count === 0) throw createUsageFailure(`--add-nodes ${JSON.stringify(text)}: adds no node`);
  return {
    change: { change: { case: 'addNodes', value: { ...nodes, count } } },
    description: `add ${count} ${count === 1 ? 'node' : 'nodes'} ${like === undefined ? `of ${source}` : `like ${like}`}`,
  };
}

/**
 * Reads a file that describes nodes: `zone`, `labels`, `capacity` and the other fields of
 * SimulatedNodes except `count`.
 */
async function readNodeFile(session: LocalSession, path: string): Promise<SimulatedNodes> {
  const [read] = await readFiles(session.io, [path]);
  const { file = path, bytes = new Uint8Array() } = read ?? {};
  const reader = new YamlReader(file, bytes);
  const [document, second] = reader.documents;
  if (document === undefined && reader.problems.length === 0)
    reader.report(null, '', 'describes no node');
  if (second !== undefined) reader.report(second.contents, '', 'describes more than one node');
  const nodes = document === undefined ? undefined : readNodes(reader, document);
  if (reader.problems.length > 0 || nodes === undefined)
    throw new CliFailure(
      ExitCode.usage,
      `nothing was simulated:\n${reader.problems.map(formatProblem).join('\n')}`,
    );
  return nodes;
}

function readNodes(reader: YamlReader, document: Document.Parsed): SimulatedNodes | undefined {
  const root = reader.resolveAlias(document, document.contents);
  const json = readMessage(reader, document, SimulatedNodesSchema, root, root, 'node');
  if (json === undefined || reader.problems.length > 0) return undefined;
  if (typeof json === 'object' && json !== null && 'count' in json) {
    reader.report(root, 'node.count', 'is given by --add-nodes; remove the key');
    return undefined;
  }
  return fromJson(SimulatedNodesSchema, json);
}
