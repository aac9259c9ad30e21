import {
  toBinary,
  type DescEnum,
  type DescExtension,
  type DescField,
  type DescFile,
  type DescMessage,
  type DescOneof,
  type DescService,
} from '@bufbuild/protobuf';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';

/**
 * Finds the descriptor file that declares a symbol. Built once from the reflected services and all
 * files that they import.
 */
export class ReflectionIndex {
  /** Full names, sorted. */
  readonly serviceNames: readonly string[];
  private readonly files = new Map<string, DescFile>();
  private readonly symbols = new Map<string, DescFile>();
  private readonly messages = new Set<string>();
  private readonly extensions = new Map<string, Map<number, DescFile>>();
  private readonly encoded = new Map<DescFile, Uint8Array>();

  constructor(services: readonly DescService[]) {
    this.serviceNames = [...new Set(services.map((service) => service.typeName))].sort();
    for (const service of services) this.addFile(service.file);
  }

  /** @param name - As in an import: `cloudless/api/workload.proto`. */
  findFileByName(name: string): DescFile | undefined {
    return this.files.get(name);
  }

  /**
   * @param symbol - Full name, without a leading dot, of a service, call, message, field, oneof,
   * enum, enum value or extension.
   */
  findFileBySymbol(symbol: string): DescFile | undefined {
    return this.symbols.get(symbol);
  }

  findFileByExtension(messageName: string, extensionNumber: number): DescFile | undefined {
    return this.extensions.get(messageName)?.get(extensionNumber);
  }

  /**
   * Numbers of all known extensions of a message, ascending; undefined when there is no such
   * message.
   */
  listExtensionNumbers(messageName: string): readonly number[] | undefined {
    if (!this.messages.has(messageName)) return undefined;
    return [...(this.extensions.get(messageName)?.keys() ?? [])].sort((a, b) => a - b);
  }

  /** A file and all files it imports, directly or not, each once. The file itself comes first. */
  withImports(file: DescFile): readonly DescFile[] {
    const found = new Set([file]);
    for (const each of found) for (const imported of each.dependencies) found.add(imported);
    return [...found];
  }

  /** The file's FileDescriptorProto in the binary format. */
  encode(file: DescFile): Uint8Array {
    let bytes = this.encoded.get(file);
    if (bytes === undefined)
      this.encoded.set(file, (bytes = toBinary(FileDescriptorProtoSchema, file.proto)));
    return bytes;
  }

  private addFile(root: DescFile): void {
    for (const file of this.withImports(root)) {
      if (this.files.has(file.proto.name)) continue;
      this.files.set(file.proto.name, file);
      for (const service of file.services) {
        this.symbols.set(service.typeName, file);
        for (const method of service.methods)
          this.symbols.set(`${service.typeName}.${method.name}`, file);
      }
      for (const each of file.enums) this.addEnum(each);
      for (const each of file.extensions) this.addExtension(each);
      for (const each of file.messages) this.addMessage(each);
    }
  }

  private addMessage(message: DescMessage): void {
    const { file, typeName } = message;
    this.symbols.set(typeName, file);
    this.messages.add(typeName);
    const members: readonly (DescField | DescOneof)[] = [...message.fields, ...message.oneofs];
    for (const member of members) this.symbols.set(`${typeName}.${member.name}`, file);
    for (const each of message.nestedEnums) this.addEnum(each);
    for (const each of message.nestedExtensions) this.addExtension(each);
    for (const each of message.nestedMessages) this.addMessage(each);
  }

  /** Enum values are siblings of their enum, not members of it (as in C++). */
  private addEnum(desc: DescEnum): void {
    this.symbols.set(desc.typeName, desc.file);
    const scope = desc.typeName.slice(0, desc.typeName.lastIndexOf('.') + 1);
    for (const value of desc.values) this.symbols.set(scope + value.name, desc.file);
  }

  private addExtension(extension: DescExtension): void {
    this.symbols.set(extension.typeName, extension.file);
    const extendee = extension.extendee.typeName;
    const numbers = this.extensions.get(extendee) ?? new Map<number, DescFile>();
    this.extensions.set(extendee, numbers.set(extension.number, extension.file));
  }
}
