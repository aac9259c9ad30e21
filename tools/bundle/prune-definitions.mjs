// Removes the API definitions that a program does not use from its bundle.
import { readFile } from 'node:fs/promises';
import { extname } from 'node:path';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { base64Decode, base64Encode } from '@bufbuild/protobuf/wire';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';

/** Path of a generated file with definitions. */
const GENERATED = /_pb\.[jt]s$/;
/** A definition in a generated file: an encoded descriptor, and variables of the files it imports. */
const DEFINITION = /fileDesc\("([A-Za-z0-9+/]+)"(?:, \[([^\]]*)\])?\)/;
/** A use of a definition in a bundle: kind, variable of the file, and the path in the file. */
const USE = /\b(message|enum|service|ext)Desc\((file_\w+), (\d+(?:, \d+)*)\)/g;

/**
 * Reads the definitions in a bundle.
 * @param code - the text of the bundle
 * @returns by variable, such as `file_cloudless_api_node`: `google.protobuf.FileDescriptorProto`
 */
export function readDefinitions(code) {
  const found = code.matchAll(new RegExp(`(file_\\w+) = [^"]*?${DEFINITION.source}`, 'g'));
  return new Map([...found].map(([, variable, encoded]) => [variable, decode(encoded)]));
}

/**
 * Creates a plugin of esbuild for another build of the same bundle. A process decodes all of its API
 * definitions when it starts, which takes most of the time to load a small program. The plugin
 * keeps the messages and services that the code uses, the types of their fields and methods, and
 * all enums of the files with these types. The plugin keeps an unused message as an empty message,
 * because generated code finds a message by its position, and removes validation rules, which only a
 * server reads.
 * @param code - the text of the bundle without the plugin
 */
export function createPruning(code) {
  const definitions = readDefinitions(code);
  const types = collectTypes(definitions);
  const used = listUsed(code);
  const variableOf = new Map([...definitions].map(([variable, { name }]) => [name, variable]));
  return {
    name: 'prune-definitions',
    setup({ onLoad }) {
      onLoad({ filter: GENERATED }, async ({ path }) => {
        const text = await readFile(path, 'utf8');
        const contents = text.replace(DEFINITION, (whole, encoded, imports = '') => {
          const file = decode(encoded);
          if (!variableOf.has(file.name)) return whole; // not in the bundle
          const needed = prune(file);
          const kept = imports.split(', ').filter((each) => needed.has(each));
          const bytes = toBinary(FileDescriptorProtoSchema, file);
          return `fileDesc("${base64Encode(bytes, 'std_raw')}", [${kept.join(', ')}])`;
        });
        return { contents, loader: extname(path).slice(1) };
      });
    },
  };

  /** Removes what is not used from a file; returns the variables of the files that it needs. */
  function prune(file) {
    const names = new Set();
    for (const message of file.messageType)
      pruneMessage(message, `${prefixOf(file)}${message.name}`, names);
    file.enumType.forEach(removeFromEnum);
    for (const service of file.service) {
      if (!used.has(`${prefixOf(file)}${service.name}`)) service.method = [];
      for (const { inputType, outputType } of service.method) names.add(inputType).add(outputType);
      [service, ...service.method].forEach(removeRules);
    }
    // Extensions in messages have no variables; those of a file are used as a whole, or not at all.
    if (!usesExtensions(variableOf.get(file.name))) file.extension = [];
    for (const { extendee, typeName } of file.extension) names.add(extendee).add(typeName);
    removeRules(file);
    return new Set([...names].map((name) => variableOf.get(types.get(name)?.file.name)));
  }

  function usesExtensions(variable) {
    return code.includes(`extDesc(${variable}, `);
  }

  function pruneMessage(message, name, names) {
    if (!used.has(name)) Object.assign(message, { field: [], oneofDecl: [], enumType: [] });
    for (const { typeName } of message.field) names.add(typeName);
    message.extension = [];
    [message, ...message.field, ...message.oneofDecl].forEach(removeRules);
    message.enumType.forEach(removeFromEnum);
    for (const nested of message.nestedType) pruneMessage(nested, `${name}.${nested.name}`, names);
  }
}

/**
 * Collects the types of files.
 * @param definitions - the result of `readDefinitions`
 * @returns every message, enum and service, with its file, by its name: `.cloudless.api.Node`
 */
export function collectTypes(definitions) {
  const types = new Map();
  const add = (file, name, type) => types.set(name, { file, name, type });
  const addNested = (file, name, message) => {
    add(file, name, message);
    for (const each of message.enumType) add(file, `${name}.${each.name}`, each);
    for (const each of message.nestedType) addNested(file, `${name}.${each.name}`, each);
  };
  for (const file of definitions.values()) {
    for (const each of file.messageType) addNested(file, `${prefixOf(file)}${each.name}`, each);
    for (const each of [...file.enumType, ...file.service])
      add(file, `${prefixOf(file)}${each.name}`, each);
  }
  return types;
}

/**
 * Lists what a bundle uses of its definitions.
 * @param code - the text of the bundle
 * @returns the names of the types that the code uses, or that such types use
 */
export function listUsed(code) {
  const definitions = readDefinitions(code);
  const types = collectTypes(definitions);
  const used = new Set();
  /** Ignores names that are no types: the empty name of a scalar field, and names of packages. */
  const use = (name) => {
    const found = types.get(name);
    if (used.has(name) || found === undefined) return;
    used.add(name);
    const { field = [], method = [] } = found.type;
    for (const { typeName } of field) use(typeName);
    for (const { inputType, outputType } of method) [inputType, outputType].forEach(use);
    // A used nested type also marks the message around the type: the enums of an unused message are
    // removed.
    use(name.slice(0, name.lastIndexOf('.')));
  };
  for (const [, kind, variable, path] of code.matchAll(USE)) {
    const file = definitions.get(variable);
    if (file === undefined) continue;
    use(findAt(file, kind, path.split(', ').map(Number)));
  }
  return used;
}

/** Returns the name of the type at a position, as `messageDesc` of protobuf-es counts. */
function findAt(file, kind, path) {
  if (kind === 'service') return `${prefixOf(file)}${file.service[path[0]].name}`;
  if (kind === 'ext') return '';
  const isEnum = kind === 'enum';
  const messages = isEnum ? path.slice(0, -1) : path;
  let name = prefixOf(file).slice(0, -1);
  let around = { nestedType: file.messageType, enumType: file.enumType };
  for (const index of messages) {
    around = around.nestedType.filter(({ options }) => options?.mapEntry !== true)[index];
    name = `${name}.${around.name}`;
  }
  return isEnum ? `${name}.${around.enumType[path.at(-1)].name}` : name;
}

const decode = (encoded) => fromBinary(FileDescriptorProtoSchema, base64Decode(encoded));

const prefixOf = (file) => (file.package === '' ? '.' : `.${file.package}.`);

function removeFromEnum(definition) {
  [definition, ...definition.value].forEach(removeRules);
}

/** Rules are extensions: fields that the schema of the options does not know. */
function removeRules(definition) {
  if (definition.options !== undefined) delete definition.options.$unknown;
}
